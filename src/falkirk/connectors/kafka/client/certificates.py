"""Why a broker's certificate is not trusted: librdkafka does not say why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

TIMEOUT = 3.0


def distrust(brokers: str, settings: Mapping[str, Any]) -> str:
    """What is wrong with the first broker's certificate that is wrong; "" if none can be asked."""
    for address in brokers.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        with suppress(OSError, ValueError):
            trusted = ssl.create_default_context(
                cafile=settings.get("ssl.ca.location") or None, cadata=settings.get("ssl.ca.pem") or None
            )
            try:
                with (
                    socket.create_connection((host.strip("[]"), int(port)), TIMEOUT) as plain,
                    trusted.wrap_socket(plain, server_hostname=host),
                ):
                    pass
            except ssl.SSLCertVerificationError as error:
                return f"{address.strip()}: {error.verify_message}"
    return ""
