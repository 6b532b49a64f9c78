"""A worker's steps, take-overs and versions as OpenTelemetry's spans.

    falkirk.step        falkirk.read · falkirk.compute · (the step before commits) · falkirk.commit
    falkirk.takeover    falkirk.naming · falkirk.fencing · falkirk.rolling
    falkirk.version     falkirk.snapshot · falkirk.copy

Each is a separate trace, made when it is over, from times that were kept meanwhile. So a step costs its worker two clock
readings, and the committing thread, which mostly waits, does the rest. A thread of OpenTelemetry sends them in batches. While
the collector is away its queue fills, and loses the oldest; that is logged once, and so is its end.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from falkirk.checkpoint.ids import Step
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.observe.timed import Timed
from falkirk.runtime.observe.traces import PLACES, Traces

LAST = 2.0
"""Seconds that an ending worker waits for its last spans to be sent."""

PATH = "/v1/traces"

Ran = tuple[float, float, float, float]
"""When a step's first record arrived, when it closed, when it began to run, and when it had run."""

Part = tuple[str, float, float]
"""A phase: its name, start and end."""


class Spans(Traces):
    """Makes them."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter) -> None:
        self._provider, self._exporter = provider, exporter
        self._tracer = provider.get_tracer("falkirk", version("falkirk"))
        self._ran: dict[tuple[str, Step], Ran] = {}

    def owned(self, task: Task) -> Owned:
        """An ownership that notes when each part of its take-over begins."""
        return _Watched(task, self)

    def taking_over(self, tasks: Sequence[Owned], part: Future[Any]) -> None:
        """A final failure is reported for each of them."""

        def ended(part: Future[Any]) -> None:
            if not part.cancelled() and (error := part.exception()) is not None:
                for owned in tasks:
                    if isinstance(owned, _Watched):
                        owned.over(error)

        part.add_done_callback(ended)

    def ran(self, step: ClosedStep, first: float, closed: float, began: float) -> None:
        """Kept until it commits."""
        self._ran[step.record.task, step.record.step] = (first, closed, began, time.monotonic())

    def failed(self, owned: Owned, step: Step, began: float, error: Exception) -> None:
        """The worker ends with this: its last span."""
        now = time.monotonic()
        self.tell("step", began, now, {**_about(owned), "falkirk.step": step}, [("compute", began, now)], error)

    def committing(self, steps: Sequence[ClosedStep], outcome: Future[Sequence[Fate]]) -> None:
        """The spans are made when it has ended, no matter how."""
        began = time.monotonic()
        ran = [self._ran.pop((step.record.task, step.record.step), None) for step in steps]

        def ended(outcome: Future[Sequence[Fate]]) -> None:
            now, error = time.monotonic(), outcome.exception()
            fates = [fate.value for fate in outcome.result()] if error is None else [""] * len(steps)
            for step, times, fate in zip(steps, ran, fates, strict=True):
                about = _about_step(step) | ({"falkirk.outcome": fate} if fate else {})
                parts = [*_parts(step, times), ("commit", began, now)]
                self.tell("step", parts[0][1], now, about, parts, error)

        outcome.add_done_callback(ended)

    def version(self, owned: Owned, number: int, began: float, made: float, trouble: FalkirkError | None) -> None:
        """With the time to make and to copy it."""
        now = time.monotonic()
        about = {**_about(owned), "falkirk.version": number}
        self.tell("version", began, now, about, [("snapshot", began, made), ("copy", made, now)], trouble)

    def tell(
        self,
        name: str,
        began: float,
        ended: float,
        about: Mapping[str, AttributeValue],
        parts: Sequence[Part],
        error: BaseException | None = None,
    ) -> None:
        """A finished span, and its parts."""
        zero = time.time_ns() - int(time.monotonic() * 1e9)

        def at(moment: float) -> int:
            return zero + int(moment * 1e9)

        span = self._tracer.start_span(f"falkirk.{name}", Context(), attributes=about, start_time=at(began))
        if span.is_recording():
            within = set_span_in_context(span, Context())
            for part, since, until in parts:
                self._tracer.start_span(f"falkirk.{part}", within, start_time=at(since)).end(at(until))
            if error is not None:
                span.record_exception(error, timestamp=at(ended))
                span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(at(ended))

    def close(self) -> None:
        """Send what is left. A collector that is away delays the worker no longer than `LAST`."""
        ending = threading.Thread(target=self._provider.shutdown, name="falkirk-spans", daemon=True)
        ending.start()
        ending.join(LAST)
        if ending.is_alive():
            self._exporter.shutdown()


class _Watched(Timed):
    """An ownership whose take-over is reported when it is over: the task runs, or is given up."""

    __slots__ = ("_phases", "_spans")

    def __init__(self, task: Task, spans: Spans) -> None:
        super().__init__(task)
        self._spans, self._phases = spans, list[tuple[Phase, float]]()

    def enter(self, phase: Phase) -> None:
        """As an ownership does, and note the time."""
        super().enter(phase)
        if phase in (Phase.NAMING, Phase.FENCING, Phase.ROLLING):
            self._phases.append((phase, time.monotonic()))
        elif phase is not Phase.ROLLED:
            self.over()

    def over(self, error: BaseException | None = None) -> None:
        """It is over; later events are not part of it."""
        if not self._phases:
            return
        now, phases, self._phases = time.monotonic(), self._phases, []
        ends = [*(since for _, since in phases[1:]), now]
        parts = [(phase.value, since, until) for (phase, since), until in zip(phases, ends, strict=True)]
        about = _about(self) | {"falkirk.rolled": self.rolled[1]}
        if self.phase is Phase.RUNNING:
            about["falkirk.step"] = -1 if self.last is None else self.last.step
        about["falkirk.outcome"] = "running" if self.phase is Phase.RUNNING else "given up"
        self._spans.tell("takeover", phases[0][1], now, about, parts, error)


class Sending(SpanExporter):
    """Sends batches; logs when they cannot be sent, and when they can again, once each."""

    def __init__(self, exporter: SpanExporter, place: str) -> None:
        self._exporter, self._place = exporter, place
        self._dropped = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In the sending thread."""
        _overheard.said = ""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._dropped:
                logger.warning("spans are sent to %s again; at least %s were dropped", self._place, self._dropped)
            self._dropped = 0
        else:
            if not self._dropped:
                logger.warning("spans cannot be sent to %s, and are dropped until they can (%s)",
                               self._place, _overheard.said)  # fmt: skip
            self._dropped += len(spans)
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()


class _Overheard(logging.Filter):
    """Hides OpenTelemetry's message about each attempt to send, and keeps the first for our own line."""

    said = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.said = self.said or record.getMessage()
        return False


_overheard = _Overheard()


def _no_warning(record: logging.LogRecord) -> bool:
    """Hides the warning that the queue is full, which comes for each dropped span."""
    return record.levelno != logging.WARNING


def to_collector(app: str, worker: str, url: str) -> Spans:
    """Spans that go to a collector by OTLP over HTTP: to this URL, or where the environment says. The environment sets the
    rest. Raises ConfigError if that cannot be used."""
    ours: dict[str, AttributeValue] = {
        "service.name": app,
        "service.instance.id": worker,
        "host.name": host_name(),
        "process.pid": os.getpid(),
    }
    place = url or next(filter(None, map(os.environ.get, PLACES)))
    try:
        resource = Resource.create(ours).merge(OTELResourceDetector().detect())
        exporter = trace_exporter.OTLPSpanExporter(f"{url.rstrip('/')}{PATH}" if url else None)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        sending = Sending(exporter, re.sub("//[^/]*@", "//", place))
        provider.add_span_processor(BatchSpanProcessor(sending))
    except ValueError as error:
        raise ConfigError(
            f"OpenTelemetry's settings cannot be used: {error}", where="the environment, OTEL_…"
        ) from error
    logging.getLogger(trace_exporter.__name__).addFilter(_overheard)
    logging.getLogger("opentelemetry.sdk._shared_internal").addFilter(_no_warning)
    return Spans(provider, sending)


def _about(owned: Owned) -> dict[str, AttributeValue]:
    return {"falkirk.task": str(owned.task.id), "falkirk.stage": owned.task.id.stage}


def _about_step(step: ClosedStep) -> dict[str, AttributeValue]:
    record = step.record
    read = [str(r) for r in record.division if r.end > r.start]
    return {
        **_about(step.owned),
        "falkirk.step": record.step,
        "falkirk.division": read,
        "falkirk.records.read": record.rows,
        "falkirk.records.written": sum(r.end for r in record.outputs),
        "falkirk.dead_letters": record.dead,
        "falkirk.skipped": record.skipped,
        "falkirk.changes": len(step.overlay.changes),
    }


def _parts(step: ClosedStep, times: Ran | None) -> list[Part]:
    """What came before its commit. Step 0 is not run; a step that a timer began has read nothing."""
    if times is None:
        return []
    first, closed, began, ended = times
    return [*([("read", first, closed)] if step.record.rows else []), ("compute", began, ended)]
