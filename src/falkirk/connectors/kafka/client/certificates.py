"""Why a broker's certificate is not trusted: librdkafka does not say why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

TIMEOUT = 3.0


def distrust(brokers: str, settings: Mapping[str, Any]) -> str:
    """What is wrong with the first broker's certificate that is wrong; "" if none can be asked, or if the settings say not to
    look. What they say not to look at is not why a connection fails."""
    if str(settings.get("enable.ssl.certificate.verification", True)).lower() in ("false", "f", "0"):
        return ""
    for address in brokers.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        host = host.strip("[]")
        with suppress(OSError, ValueError):
            trusted = ssl.create_default_context(
                cafile=settings.get("ssl.ca.location") or None, cadata=settings.get("ssl.ca.pem") or None
            )
            trusted.check_hostname = settings.get("ssl.endpoint.identification.algorithm") != "none"
            try:
                with (
                    socket.create_connection((host, int(port)), TIMEOUT) as plain,
                    trusted.wrap_socket(plain, server_hostname=host),
                ):
                    pass
            except ssl.SSLCertVerificationError as error:
                return f"{address.strip()}: {error.verify_message}"
    return ""
