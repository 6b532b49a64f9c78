"""How a gateway is run, beside the settings of the app."""

from __future__ import annotations

import msgspec

from falkirk.connectors.http.server import Tls, check_server
from falkirk.errors import ConfigError
from falkirk.runtime.host.listening import is_loopback, parse_address, read_token


class GatewayOptions(msgspec.Struct, frozen=True):
    """Where it listens, and what it lets in."""

    listen: str
    """[HOST:]PORT."""
    token_file: str = ""
    """The file with the token that clients must have; "": they need none."""
    certificate: str = ""
    """The file of the certificate for TLS; "": no TLS."""
    key: str = ""
    """The file of its key; "": it is in the same file."""
    public: bool = False
    """Whether an address that others reach may do without a token."""
    body: int = 1 << 20
    """Bytes of a body."""
    in_flight: int = 2000
    """Requests that wait at a time, of each source."""
    within: float = 30.0
    """Seconds until a request that waits is told to ask again."""
    subscribers: int = 100
    """Subscribers of sinks at a time; 0: nobody can subscribe."""

    @property
    def tls(self) -> Tls | None:
        """The files for TLS; None: none is spoken."""
        return Tls(self.certificate, self.key) if self.certificate else None


def check_options(options: GatewayOptions) -> bytes:
    """Raises ConfigError unless a gateway can be run so. Returns the token; b"": there is none."""
    host, _ = parse_address(options.listen, "--listen")
    if options.key and not options.certificate:
        raise ConfigError("there is a key, but no certificate", where="--listen-key", hint="give --listen-cert too")
    check_server(options.tls)
    if options.token_file:
        return read_token(options.token_file, "--listen-token-file")
    if not is_loopback(host) and not options.public:
        raise ConfigError(
            f"without a token, anybody who reaches {host} could send requests, and read sinks", where="--listen",
            hint="give --listen-token-file FILE, or an address on loopback; if anybody may: --listen-public",
        )  # fmt: skip
    return b""
