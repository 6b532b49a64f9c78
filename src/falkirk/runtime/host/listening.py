"""The addresses where this host's processes answer, and the token that protects one."""

from __future__ import annotations

from pathlib import Path

from falkirk.errors import ConfigError

LOOPBACK = "127.0.0.1"

EVERYWHERE = ("0.0.0.0", "::")
"""All addresses of this host."""

SHORTEST = 16
"""Characters that a token has at least: a shorter one can be guessed."""


def parse_address(text: str, where: str) -> tuple[str, int]:
    """Host and port. `where`: the option that gives them. Raises ConfigError.

    >>> parse_address("8080", "--http"), parse_address("0.0.0.0:9100", "--http"), parse_address("[::1]:8080", "--listen")
    (('127.0.0.1', 8080), ('0.0.0.0', 9100), ('::1', 8080))
    """
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not a valid address", where=where, hint="give HOST:PORT, or a PORT of loopback")
    return host or LOOPBACK, int(port)


def shown_address(host: str, port: int) -> str:
    """As it is in a URL.

    >>> shown_address("127.0.0.1", 8080), shown_address("::1", 8080)
    ('127.0.0.1:8080', '[::1]:8080')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this host reaches it.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "broker-1")]
    [True, True, True, False, False]
    """
    import ipaddress  # only those who ask for it need it: a restarted run is as quick as its imports

    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_query(address: str, token_file: str) -> None:
    """Raises ConfigError unless workers may answer for their state there."""
    if not address:
        if token_file:
            raise ConfigError("there is a token, but no address", where="--query-token-file", hint="give --query too")
        return
    host, _ = parse_address(address, "--query")
    if token_file:
        read_token(token_file, "--query-token-file")
    elif not is_loopback(host):
        raise ConfigError(
            f"without a token, anybody who reaches {host} could read the app's state",
            where="--query",
            hint="give --query-token-file FILE, or an address on loopback",
        )


def read_token(path: str, where: str) -> bytes:
    """The token in a file, without white space around it. `where`: the option that names it. Raises ConfigError."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"the token cannot be read: {error.strerror}", where=f"{where} {path}") from error
    if len(token) < SHORTEST or not token.isascii() or any(byte <= 32 or byte == 127 for byte in token):
        raise ConfigError(
            f"the token is not valid: it needs at least {SHORTEST} visible ASCII characters",
            where=f"{where} {path}",
            hint=f"for example: openssl rand -hex 32 > {path}",
        )
    return token
