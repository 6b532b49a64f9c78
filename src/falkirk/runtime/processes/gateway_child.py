"""The supervisor's end of a gateway process, which answers requests to HTTP sources."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import WorkerEvent
from falkirk.runtime.processes.kept_child import KeptChild
from falkirk.runtime.processes.parent import command
from falkirk.runtime.processes.supervisor import CRASH_WINDOW


class GatewayChild(KeptChild):
    """Keeps a gateway process running. While it is away, clients are refused, and ask again."""

    soon = CRASH_WINDOW

    def __init__(
        self, target: str, settings: Settings, options: GatewayOptions, tell: Callable[[WorkerEvent], None]
    ) -> None:
        told = msgspec.json.encode(options).decode()
        arguments = command("falkirk.runtime.processes.gateway_process", target, told)
        super().__init__("the gateway", arguments, settings, tell)
