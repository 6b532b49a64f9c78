"""`falkirk serve`: a gateway of an app."""

from __future__ import annotations

import os
import signal
from typing import Any

import click

from falkirk.cli.ending import last_act
from falkirk.cli.gateway_options import gateway_from, gateway_options
from falkirk.cli.options import serve_options, serve_settings
from falkirk.connectors.http.server import Server, run
from falkirk.runtime.gateway.gateway import serve_app
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.logs import about, say, setup_logging
from falkirk.stream.flow.load import load_flow


@click.command()
@serve_options
@gateway_options("8080")
def serve(target: str, **options: Any) -> None:
    """Run a gateway, which answers requests to the HTTP sources of a flow (flow.http), and serves its sinks to subscribers.
    falkirk run runs the flow itself.

    POST /NAME is a request to the source NAME. It is answered once the step that has read it has committed. Run as many
    gateways as you like, on any hosts: a client may ask any of them, and again another. SIGTERM lets requests under way end.

    GET /sinks/NAME streams the committed records of the sink NAME as server-sent events. ?from=earliest begins with the
    first that is kept, ?from=latest (the default) with the next. A client that has lost its connection continues after its
    last event: it sends the event's id in the header Last-Event-ID, or in ?from=ID. A browser's EventSource sends the header
    itself. GET /metrics counts subscribers, for Prometheus.

    \b
    falkirk serve app:flow --brokers broker-1:9092 --listen 8080
    falkirk serve app:flow --brokers broker-1:9092 --listen 0.0.0.0:443 --listen-token-file token \\
        --listen-cert cert.pem --listen-key key.pem
    """
    how = GatewayOptions(**gateway_from(options))
    settings = serve_settings(**options)
    setup_logging(settings.log_level, settings.log_format)
    plan = load_flow(target).plan(settings.prefix)
    about(app=plan.app)

    def told(url: str, _: Server) -> None:
        say(f"{plan.app}: answers requests at {url}, pid {os.getpid()}")

    # The server answers signals while it runs, and raises them again when it has ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with last_act():
        run(serve_app(plan, settings, how, told))
