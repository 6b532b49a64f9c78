"""A gateway process, started by a supervisor (`falkirk.runtime.processes.parent`). It works until SIGTERM, or until its
supervisor ends."""

from __future__ import annotations

import os
import sys
import threading

import msgspec

from falkirk.connectors.http.server import Server, run
from falkirk.runtime.gateway.gateway import serve_app
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.logs import about, say
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.processes.process import Pipe, be_child, watch_supervisor
from falkirk.stream.flow.load import load_flow


def main() -> None:
    """Be the gateway."""
    be_child(_serve)


def _serve(settings: Settings, _: Pipe, stop: threading.Event) -> None:
    options = msgspec.json.decode(sys.argv[2], type=GatewayOptions)
    threading.Thread(target=watch_supervisor, daemon=True).start()
    plan = load_flow(sys.argv[1]).plan(settings.prefix)
    about(app=plan.app)

    def told(url: str, server: Server) -> None:
        say(f"{plan.app}: answers requests at {url}, pid {os.getpid()}")
        if stop.is_set():
            server.stop()

    run(serve_app(plan, settings, options, told))
