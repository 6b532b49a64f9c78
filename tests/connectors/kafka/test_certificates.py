"""Why a broker's certificate is not trusted, and when that is not the trouble. No broker: a server that speaks TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from falkirk.connectors.kafka.client.certificates import distrust

CA = trustme.CA()


@pytest.fixture
def broker() -> Iterator[str]:
    """The address of a broker that is certified as another host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("elsewhere").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = server.accept()
                    with plain, suppress(ssl.SSLError):
                        context.wrap_socket(plain, server_side=True)

        threading.Thread(target=greet, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "unable to get local issuer certificate"),
        ({"ssl.ca.location": "ca.pem"}, "IP address mismatch"),
        ({"ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "none"}, ""),
        ({"enable.ssl.certificate.verification": "false"}, ""),
        ({"enable.ssl.certificate.verification": False}, ""),
    ],
)
def test_what_the_settings_say_not_to_look_at_is_not_the_trouble(
    settings: dict[str, Any], why: str, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    CA.cert_pem.write_to_path("ca.pem")
    found = distrust(broker, settings)
    assert why in found
    assert bool(found) is bool(why)
