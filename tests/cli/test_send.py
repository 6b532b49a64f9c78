"""Rows sent from the command line are what the flow reads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import PATIENCE_S

from falkirk.cli.commands.send import as_they_come
from falkirk.cli.main import falkirk
from falkirk.errors import ClusterError, ConfigError, FalkirkError
from falkirk.testing.registry import RegistryServer

pytestmark = pytest.mark.kafka

FLOW = """
import falkirk as fk

flow = fk.Flow("{prefix}app")
bids = flow.source(
    "bids", topic="{prefix}bids", key="auction", time="at",
    value=fk.{kind}({{"auction": fk.Int64, "price": fk.Decimal(9, 2), "at": fk.Datetime}}{registry}),
)
bids.group_by("auction", id="totals").agg(n=fk.len(), total=fk.sum("price")).sink(
    "totals", topic="{prefix}totals", key="auction", value=fk.Json()
)
{more}
"""
BIDS = [{"auction": i % 5, "price": f"{i}.25", "at": f"2026-01-31T12:00:{i % 60:02}Z"} for i in range(200)]

Request = Callable[..., str]


@pytest.fixture
def asked(kafka: str, topic_prefix: str, tmp_path: Path) -> Request:
    """Writes the flow, makes its topic of three partitions, and gives what a command says."""

    def ask(
        command: str, *arguments: str, lines: str = "", kind: str = "Json", registry: str = "", more: str = ""
    ) -> str:
        chosen = {
            "kind": kind,
            "registry": f', registry=fk.Registry("{registry}")' if registry else "",
            "more": more,
        }
        (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix, **chosen))
        given = [command, f"{tmp_path / 'app.py'}:flow", *arguments, "--brokers", kafka]
        if command == "run":
            state = str(tmp_path / "state")
            subprocess.run(
                [sys.executable, "-m", "falkirk", *given, "--state-dir", state], check=True, timeout=PATIENCE_S
            )
            return ""
        done = CliRunner().invoke(falkirk, given, input=lines)
        if isinstance(done.exception, FalkirkError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    admin = AdminClient({"bootstrap.servers": kafka})
    name = f"{topic_prefix}bids"
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    return ask


@pytest.mark.parametrize("kind", ["Json", "Avro"])
def test_rows_are_keyed_placed_and_timed_as_the_flow_reads_them(asked: Request, topic_prefix: str, kind: str) -> None:
    with RegistryServer() as server:
        told = {"kind": kind, "registry": server.url if kind == "Avro" else ""}
        lines = "\n".join(map(json.dumps, BIDS)) + "\n\n"
        assert f"200 records sent to {topic_prefix}bids" in asked("send", lines=lines, **told)
        asked("run", "--until", "end", **told)
        shown = asked("peek", "totals", "-n", "0", "--json", **told)
        read = [json.loads(line) for line in asked("peek", "bids", "-n", "0", "--json", **told).splitlines()]
    newest = {row["key"]: row["value"] for row in map(json.loads, shown.splitlines())}
    assert sum(value["n"] for value in newest.values()) == len(BIDS)
    assert {row["partition"] for row in read} <= {0, 1, 2}
    assert sorted(row["value"]["at"][:19] for row in read) == sorted(bid["at"][:19] for bid in BIDS)
    due = sum(float(bid["price"]) for bid in BIDS if bid["auction"] == 3)
    assert float(newest[3]["total"]) == due


def test_the_first_line_that_is_no_row_is_named_and_those_before_it_are_sent(asked: Request) -> None:
    lines = [json.dumps(bid) for bid in BIDS[:3]]
    with pytest.raises(ConfigError, match=r"line 3 is not a valid row of 'bids': .*colour") as caught:
        asked("send", "bids", lines="\n".join([*lines[:2], '{"auction": 1, "colour": "red"}', lines[2]]))
    assert "auction Int64" in caught.value.hint
    assert len(asked("peek", "bids", "-n", "0", "--json").splitlines()) == 2


def test_what_cannot_be_sent_to_is_said(asked: Request, topic_prefix: str) -> None:
    with pytest.raises(ConfigError, match="has no source or table called 'bid'"):
        asked("send", "bid", lines="{}")
    two = f'flow.source("{topic_prefix}asks", value=fk.Text()).sink("{topic_prefix}copies", value=fk.Text())'
    with pytest.raises(ConfigError, match="reads from several") as caught:
        asked("send", lines="{}", more=two)
    assert "bids" in caught.value.hint
    with pytest.raises(ClusterError, match="does not exist"):
        asked("send", f"{topic_prefix}asks", lines="{}", more=two)


def test_lines_are_handed_on_as_they_come() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as pipe, os.fdopen(into, "wb", buffering=0) as writer:
        coming = as_they_come(pipe)
        writer.write(b"one\n")
        assert next(coming) == [b"one"]
        writer.write(b"\ntwo\n")
        writer.close()
        assert [line for lines in coming for line in lines] == [b"two"]
    assert list(as_they_come(io.BytesIO(b""))) == []
