"""What a gateway's options are refused for, before anything runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import ConfigError
from falkirk.runtime.app.needs import rights
from falkirk.runtime.gateway.gateway import folder_of_its_own, serve_app
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.settings import Settings


def test_keys_must_count_for_longer_than_requests_may_wait(tmp_path: Path) -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json({"usd": int}), keep="1m")
    with pytest.raises(ConfigError, match="may wait for longer than its key counts"):
        served(flow, tmp_path, within=31.0)


def served(flow: fk.Flow, folder: Path, **options: Any) -> None:
    asyncio.run(serve_app(flow.plan(), Settings("nobody:1", str(folder)), GatewayOptions(**{"listen": "0", **options})))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": "0.0.0.0:8080"}, "without a token, anybody who reaches"),
        ({"listen": "here"}, "'here' is not a valid address"),
        ({"token_file": "missing"}, "the token cannot be read: .*\n  where: --listen-token-file missing"),
        ({"token_file": "/dev/null"}, "the token is not valid.*\n  where: --listen-token-file"),
        ({"key": "key.pem"}, "there is a key, but no certificate"),
        ({"certificate": "missing.pem"}, "the certificate cannot be used"),
        ({"listen": "203.0.113.1:1", "public": True}, "cannot listen at 203.0.113.1:1"),
    ],
)
def test_what_is_wrong_is_told_at_once(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json({"usd": int}))
    with pytest.raises(ConfigError, match=words):
        served(flow, tmp_path, **options)


def test_a_flow_without_http_sources_has_nothing_to_serve_but_its_sinks(tmp_path: Path) -> None:
    flow = fk.Flow("shop")
    flow.source("orders", value=fk.Json({"usd": int})).sink("all", value=fk.Json())
    with pytest.raises(ConfigError, match="flow 'shop' has no HTTP source, and no sink to subscribe to") as raised:
        served(flow, tmp_path, subscribers=0)
    assert "--subscribers" in raised.value.hint
    flow = fk.Flow("shop")
    flow.source("orders", value=fk.Json({"usd": int})).sink_parquet("files", str(tmp_path))
    with pytest.raises(ConfigError, match="no sink to subscribe to"):
        served(flow, tmp_path)


def test_gateways_that_serve_sinks_need_to_read_them_and_others_do_not() -> None:
    flow = fk.Flow("shop")
    flow.source("orders", value=fk.Json({"usd": int})).sink("all", value=fk.Json())
    for serve in (False, True):
        [right] = [right for right in rights(flow.plan(), Settings("nobody:1", ""), serve=serve) if right.name == "all"]
        assert ("READ" in right.operations) is serve
        assert "WRITE" in right.operations


def test_gateways_that_share_a_state_directory_have_folders_of_their_own(tmp_path: Path) -> None:
    with folder_of_its_own(tmp_path / "shop") as first:
        with folder_of_its_own(tmp_path / "shop") as second:
            assert first != second
        with folder_of_its_own(tmp_path / "shop") as third:
            assert third == second
