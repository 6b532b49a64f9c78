"""What a worker reports for tracing: a span for each step, each take-over, each version.

    worker, upkeep ──▶ Traces            not traced: nothing is kept, OpenTelemetry is not imported
                       └── spans.Spans   spans, in batches, to a collector

It only listens: nothing here decides anything, waits for the collector, or fails a step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any

from falkirk.checkpoint.ids import Step
from falkirk.checkpoint.tasks import ClosedStep, Owned, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.observe.timed import Timed

PLACES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Where the environment says that spans go."""

HINT = "pip install 'falkirk[otel]'"


class Traces:
    """Not traced. Times are of `time.monotonic()`, in seconds."""

    def owned(self, task: Task) -> Owned:
        """A take-over begins. It is timed, traced or not: what it takes says what the next one takes."""
        return Timed(task)

    def taking_over(self, tasks: Sequence[Owned], part: Future[Any]) -> None:
        """A part of it is in progress, for these tasks."""

    def ran(self, step: ClosedStep, first: float, closed: float, began: float) -> None:
        """A step has just run. It was read from `first` until `closed`, and began to run at `began`."""

    def failed(self, owned: Owned, step: Step, began: float, error: Exception) -> None:
        """A step has failed: the worker ends with this error."""

    def committing(self, steps: Sequence[ClosedStep], outcome: Future[Sequence[Fate]]) -> None:
        """The transaction of some steps has been handed to the committer."""

    def version(self, owned: Owned, number: int, began: float, made: float, trouble: FalkirkError | None) -> None:
        """A version was just made and copied; or could not be copied."""

    def close(self) -> None:
        """The worker ends: the rest is sent, within a limited time."""


SILENT = Traces()


def wanted(settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether spans are to be sent: the settings say where, or OpenTelemetry's variables do.

    >>> wanted(Settings("", "", traces="http://collector:4318"), {}), wanted(Settings("", ""), {})
    (True, False)
    >>> wanted(Settings("", ""), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    True
    """
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    off |= environment.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    return not off and bool(settings.traces or any(map(environment.get, PLACES)))


def check_place(url: str) -> None:
    """Raises ConfigError if it is not a URL, or if OpenTelemetry is not installed.

    >>> check_place("collector:4317")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: 'collector:4317' is not a URL
      where: --traces
      to do: give http://HOST:4318, of a collector that takes OTLP over HTTP
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{url!r} is not a URL",
            where="--traces",
            hint="give http://HOST:4318, of a collector that takes OTLP over HTTP",
        )
    if not installed():
        raise ConfigError("spans need OpenTelemetry", where="--traces", hint=HINT)


def installed() -> bool:
    """Whether OpenTelemetry is installed, with its exporter."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def warm_up(settings: Settings) -> None:
    """Import the exporter, if spans are to be sent: a spare has the time that a worker has not."""
    if wanted(settings) and installed():
        import falkirk.runtime.observe.spans  # noqa: F401


def traces_of(app: str, worker: str, settings: Settings) -> Traces:
    """The traces of a worker. Raises ConfigError if the settings ask for more than is installed.

    The environment may be meant for others in the same pod: if only it asks, the worker continues without traces.
    """
    if not wanted(settings):
        return SILENT
    if settings.traces:
        check_place(settings.traces)
    elif not installed():
        logger.warning("%s is set, and no spans are sent: they need OpenTelemetry (%s)",
                       next(filter(os.environ.get, PLACES)), HINT)  # fmt: skip
        return SILENT
    from falkirk.runtime.observe.spans import to_collector

    return to_collector(app, worker, settings.traces)
