"""The options of a gateway, which answers requests to HTTP sources, and serves sinks to subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from falkirk.cli.setting import DURATION, Command, Decorator, absolute, setting
from falkirk.durations import parse_size

SUBSCRIBERS = 100

NOWHERE: Mapping[str, Any] = {"listen": ""}
"""No gateway."""

_gateway_options = [
    setting("--listen-token-file", metavar="FILE", default="", help="The file with the token that requests of "
            "clients must have.  [default: none: then --listen must be on loopback]"),
    setting("--listen-public", is_flag=True, help="Let anybody who reaches the address of --listen send requests and read "
            "sinks, without a token."),
    setting("--listen-cert", metavar="FILE", default="", help="The certificate for TLS, in PEM, with its chain.  [default: "
            "no TLS]"),
    setting("--listen-key", metavar="FILE", default="", help="The key of the certificate, in PEM.  [default: it is in the "
            "file of the certificate]"),
    setting("--body-limit", metavar="SIZE", default="1MiB", show_default=True, help="The largest body of a request."),
    setting("--in-flight", type=click.IntRange(1, 100_000), default=2000, show_default=True, help="How many requests to an "
            "HTTP source may wait at a time. More get 503."),
    setting("--answer-within", type=DURATION, default="30s", show_default=True, help="How long a request may wait for its "
            "answer. Then it gets 504, and the client may ask again."),
    setting("--subscribers", type=click.IntRange(0, 10_000), help="How many subscribers of sinks there may be at a time. "
            "More get 503. 0: nobody can subscribe.  [default: 100; with --listen-public 0]"),
]  # fmt: skip


def gateway_options(listen: str) -> Decorator:
    """How clients are served. `listen`: the address by default; "": nowhere."""
    shown = f"{listen}" if listen else "off"
    first = setting("--listen", metavar="[HOST:]PORT", default=listen, help="Answer requests to the flow's HTTP sources, "
                    "and serve its sinks to subscribers, at "
                    f"this address; without a host, on loopback. Port 0 is a free one.  [default: {shown}]")  # fmt: skip

    def added(command: Command) -> Command:
        for option in reversed([first, *_gateway_options]):
            command = option(command)
        return command

    return added


def gateway_from(options: dict[str, Any]) -> Mapping[str, Any]:
    """The options of a gateway, by the names of `GatewayOptions`, taken out of a command's options. A command that runs only
    SQL has none: SQL has no HTTP sources."""
    if "listen" not in options:
        return NOWHERE
    public, subscribers = options.pop("listen_public"), options.pop("subscribers")
    if subscribers is None:
        # Who lets anybody send requests has not said that anybody may read the sinks.
        subscribers = 0 if public else SUBSCRIBERS
    return {
        "listen": options.pop("listen"),
        "token_file": absolute(options.pop("listen_token_file")),
        "certificate": absolute(options.pop("listen_cert")),
        "key": absolute(options.pop("listen_key")),
        "public": public,
        "body": parse_size(options.pop("body_limit"), where="--body-limit"),
        "in_flight": options.pop("in_flight"),
        "within": options.pop("answer_within").total_seconds(),
        "subscribers": subscribers,
    }
