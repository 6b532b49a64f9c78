"""What a worker tells of its work to whoever traces it: a span for each step, each take-over, each version.

    worker, upkeep ──▶ Traces            nobody listens: nothing is kept, OpenTelemetry is not imported
                       └── spans.Spans   spans, in batches, to a collector

It listens and no more: nothing here decides anything, waits for the collector, or fails a step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.util import find_spec

from falkirk.checkpoint.ids import OwnerId, Step
from falkirk.checkpoint.tasks import ClosedStep, Owned, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.connectors.kafka.config import logger
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.settings import Settings

PLACES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Where the environment says that spans go."""

HINT = "pip install 'falkirk[otel]'"


class Traces:
    """Nobody listens. Times are of `time.monotonic()`, in seconds."""

    def owned(self, task: Task) -> Owned:
        """A take-over begins."""
        return Owned(task)

    def taking_over(self, tasks: Sequence[Owned], part: Future[bool] | Future[None]) -> None:
        """A part of it is under way, for these tasks."""

    def ran(self, step: ClosedStep, first: float, closed: float, began: float) -> None:
        """A step has run just now. It was read from `first` until `closed`, and began to run at `began`."""

    def failed(self, owned: Owned, step: Step, began: float, error: Exception) -> None:
        """A step has not: the worker ends with this."""

    def committing(self, steps: Sequence[ClosedStep], outcome: Future[list[Fate]]) -> None:
        """The transaction of some steps has been handed to the committer."""

    def version(self, owned: Owned, number: int, began: float, made: float, trouble: FalkirkError | None) -> None:
        """A version was made, and copied just now; or could not be copied."""

    def close(self) -> None:
        """The worker ends: what is left is sent, within a time that holds nobody up."""


SILENT = Traces()


def wanted(settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether spans are to be sent: the settings say where, or OpenTelemetry's own variables do.

    >>> wanted(Settings("", "", traces="http://collector:4318"), {}), wanted(Settings("", ""), {})
    (True, False)
    >>> wanted(Settings("", ""), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    True
    """
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    off |= environment.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    return not off and bool(settings.traces or any(map(environment.get, PLACES)))


def check_place(url: str) -> None:
    """Raises ConfigError for what is no URL, and where OpenTelemetry is not installed.

    >>> check_place("collector:4317")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: 'collector:4317' is no URL
      where: --traces
      to do: give http://HOST:4318, of a collector that takes OTLP over HTTP
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{url!r} is no URL",
            where="--traces",
            hint="give http://HOST:4318, of a collector that takes OTLP over HTTP",
        )
    if not installed():
        raise ConfigError("spans need OpenTelemetry", where="--traces", hint=HINT)


def installed() -> bool:
    """Whether OpenTelemetry is there, with what sends spans."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def warm_up(settings: Settings) -> None:
    """Import what sends spans, if they are to be sent: a spare has the time that a worker has not."""
    if wanted(settings) and installed():
        import falkirk.runtime.spans  # noqa: F401


def traces_of(app: str, owner: OwnerId, settings: Settings) -> Traces:
    """Who listens to a worker. Raises ConfigError where the settings ask for more than there is.

    The environment may be meant for others in the same pod: where it alone asks, work goes on without.
    """
    if not wanted(settings):
        return SILENT
    if settings.traces:
        check_place(settings.traces)
    elif not installed():
        logger.warning("%s is set, and no spans are sent: they need OpenTelemetry (%s)",
                       next(filter(os.environ.get, PLACES)), HINT)  # fmt: skip
        return SILENT
    from falkirk.runtime.spans import to_collector

    return to_collector(app, owner, settings.traces)
