"""What a worker tells of its steps, take-overs and versions, as a collector gets it; and that it never waits for one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.runtime.observe.collector import Collector, plain
from tests.runtime.parts import domain_of, running

import falkirk as fk
from falkirk.checkpoint import takeover
from falkirk.checkpoint.ids import Millis, Offset, OwnerId, Step
from falkirk.checkpoint.tasks import ClosedStep, Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.cli.commands.run import run
from falkirk.errors import ConfigError, DiskError, UserCodeError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.observe.spans import Spans
from falkirk.runtime.observe.traces import PLACES, SILENT, Traces, traces_of
from falkirk.runtime.worker.pacing import Pacer
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.state.engine import Memory
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress
from falkirk.testing.cluster import Cluster
from falkirk.testing.process import Process


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """In which nothing is set."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> Spans:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return Spans(provider, memory)


def told(memory: InMemorySpanExporter) -> list[tuple[ReadableSpan, list[str]]]:
    """The spans that stand by themselves, in order, each with the names of its parts. Parts lie within their span."""
    found = memory.get_finished_spans()
    whole = [span for span in found if span.parent is None]
    parts = {span.context.span_id: list[ReadableSpan]() for span in whole}
    for span in found:
        if span.parent is not None:
            parts[span.parent.span_id].append(span)
    for span in whole:
        for part in parts[span.context.span_id]:
            assert part.context.trace_id == span.context.trace_id
            assert span.start_time <= part.start_time <= part.end_time <= span.end_time  # type: ignore[operator]
    return [(span, [part.name.removeprefix("falkirk.") for part in parts[span.context.span_id]]) for span in whole]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("falkirk."): value for name, value in (span.attributes or {}).items()}


# -- steps -------------------------------------------------------------------------------------------------------------


def cluster() -> Cluster:
    """With the topics of a flow of one task, and five records to read."""
    bids = (flow := fk.Flow("auctions")).source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    bids.group_by("auction", id="counts").agg(n=fk.len()).sink("counts", key="auction", value=fk.Json())
    made = Cluster(flow.plan(), 1)
    for price in range(5):
        made.broker[made.tasks[0].inputs[0].place].append(b"7", b'{"auction":7,"price":%d}' % price, 0, None)
    return made


def closed(process: Process) -> ClosedStep:
    """The step that waits to be committed."""
    process.close(None)
    return process.core.pipeline.staged[process.tasks[0].owned.task.id]


def test_a_step_is_told_with_its_parts_when_it_has_committed(spans: Spans, memory: InMemorySpanExporter) -> None:
    step, outcome, now = closed(Process(cluster())), Future[Sequence[Fate]](), time.monotonic()
    spans.ran(step, now - 3, now - 2, now - 1)
    spans.committing([step], outcome)
    assert not memory.get_finished_spans()
    outcome.set_result([Fate.COMMITTED])

    ((span, parts),) = told(memory)
    assert (span.name, parts) == ("falkirk.step", ["read", "compute", "commit"])
    assert attributes(span) == {
        "task": "counts/0", "stage": "counts", "step": 1, "division": ("bids[0] 0..5",), "records.read": 5,
        "records.written": 1, "dead_letters": 0, "skipped": 0, "changes": 1, "outcome": "committed",
    }  # fmt: skip
    assert span.end_time - span.start_time > 3e9  # type: ignore[operator]
    assert abs(span.end_time - time.time_ns()) < 60e9  # type: ignore[operator]


def test_a_step_that_is_run_again_is_told_again(spans: Spans, memory: InMemorySpanExporter) -> None:
    step = closed(Process(cluster()))
    for fate in (Fate.ABORTED, Fate.COMMITTED):
        outcome, now = Future[Sequence[Fate]](), time.monotonic()
        spans.ran(step, now, now, now)
        spans.committing([step], outcome)
        outcome.set_result([fate])
    assert [attributes(span)["outcome"] for span, _ in told(memory)] == ["aborted", "committed"]


def test_a_transaction_that_ends_the_worker_is_told_with_its_error(spans: Spans, memory: InMemorySpanExporter) -> None:
    outcome = Future[Sequence[Fate]]()
    spans.committing([closed(Process(cluster()))], outcome)
    outcome.set_exception(DiskError("the disk is full", where="/var/lib", hint="make room"))
    ((span, _),) = told(memory)
    assert not span.status.is_ok
    assert "the disk is full" in (span.status.description or "")
    assert "outcome" not in attributes(span)


def test_a_worker_tells_of_what_it_hands_to_the_committer(spans: Spans, memory: InMemorySpanExporter) -> None:
    domain_of(running(0), running(1), traces=spans).performer.perform()
    # Step 0 has read nothing and is not run: it says where the inputs begin.
    assert [(attributes(span)["task"], parts) for span, parts in told(memory)] == [
        ("stats/0", ["commit"]),
        ("stats/1", ["commit"]),
    ]


def test_what_fails_in_a_step_is_told_before_the_worker_ends(spans: Spans, memory: InMemorySpanExporter) -> None:
    def fails(*_: object) -> None:
        raise UserCodeError("the function raised", where="bids[0], offset 7", hint="fix it")

    task = running(0)
    worker = domain_of(task, traces=spans)
    tables: Any = SimpleNamespace(positions=lambda bound: {}, seen=lambda bound: {})
    worker._inputs = SimpleNamespace(tables=tables, again=None)  # type: ignore[assignment]
    worker.pacer = Pacer(limit=0.1, max_rows=1_000, max_bytes=1 << 20)
    task.circuit.run = fails  # type: ignore[assignment]
    with pytest.raises(UserCodeError):
        worker._run_step(task, Millis(0), time.monotonic(), time.monotonic(), 0)
    ((span, parts),) = told(memory)
    assert (attributes(span)["task"], attributes(span)["step"], parts) == ("stats/0", 1, ["compute"])
    assert "offset 7" in (span.status.description or "")
    assert span.events[0].attributes["exception.type"] == "falkirk.errors.UserCodeError"  # type: ignore[index]


# -- take-overs --------------------------------------------------------------------------------------------------------


def test_a_take_over_is_told_with_its_phases_and_how_much_was_rolled(
    spans: Spans, memory: InMemorySpanExporter, environment: pytest.MonkeyPatch
) -> None:
    there = cluster()
    process = Process(there)
    process.close(None)
    process.commit()
    there.lose_disk()
    environment.setattr("falkirk.testing.process.WorkerCore", partial(WorkerCore, spans.owned))
    Process(there)
    ((span, parts),) = told(memory)
    assert (span.name, parts) == ("falkirk.takeover", ["naming", "fencing", "rolling"])
    about = attributes(span)
    assert about["rolled"] > 0
    assert {**about, "rolled": 0} == {
        "task": "counts/0", "stage": "counts", "rolled": 0, "step": 1, "outcome": "running"
    }  # fmt: skip


def test_a_take_over_that_is_given_up_is_told_as_one(spans: Spans, memory: InMemorySpanExporter) -> None:
    owned = spans.owned(cluster().tasks[0].task)
    owned.enter(Phase.NAMING)
    owned.enter(Phase.FENCING)
    takeover.abandon(owned)
    ((span, parts),) = told(memory)
    assert (attributes(span)["outcome"], parts) == ("given up", ["naming", "fencing"])


def test_what_ends_a_take_over_is_told_once(spans: Spans, memory: InMemorySpanExporter) -> None:
    owned, part = spans.owned(cluster().tasks[0].task), Future[None]()
    owned.enter(Phase.NAMING)
    spans.taking_over([owned], part)
    part.set_exception(DiskError("the disk is full"))
    takeover.abandon(owned)
    ((span, parts),) = told(memory)
    assert (span.status.description, parts) == ("the disk is full", ["naming"])


def test_giving_a_task_up_that_ran_is_no_take_over(spans: Spans, memory: InMemorySpanExporter) -> None:
    owned = spans.owned(cluster().tasks[0].task)
    for phase in (Phase.NAMING, Phase.FENCING, Phase.ROLLING, Phase.ROLLED, Phase.RUNNING):
        owned.enter(phase)
    takeover.abandon(owned)
    assert [attributes(span)["outcome"] for span, _ in told(memory)] == ["running"]


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["", "the bucket is away"])
def test_a_version_is_told_and_why_it_was_not_copied(
    spans: Spans, memory: InMemorySpanExporter, tmp_path: Path, trouble: str
) -> None:
    def upload(task: object, folder: object, progress: Progress, go_on: object) -> Progress:
        if trouble:
            raise DiskError(trouble)
        return progress

    task = running(0)
    store = RocksStore(tmp_path, Identity("app", "stats/0", "f"), Memory(1 << 20, 1 << 20))
    store.write({}, store.progress.at(Step(7), Offset(9), 0, Millis(0)))
    task.owned.store = store
    stores: Any = SimpleNamespace(upload=upload, leave=lambda task: None)
    upkeep = Maintenance(stores, SimpleNamespace(trim=lambda floors: None), traces=spans)  # type: ignore[arg-type]
    upkeep.last_versions([task])
    upkeep.close()
    store.close()
    ((span, parts),) = told(memory)
    assert (span.name, parts, attributes(span)["version"]) == ("falkirk.version", ["snapshot", "copy"], 1)
    assert (span.status.description or "") == trouble


# -- the collector -----------------------------------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def traces(url: str = "") -> Traces:
    return traces_of("auctions", OwnerId("auctions.host-0"), Settings("", "", traces=url))


def give_up(traces: Traces) -> None:
    """Something to tell of."""
    owned = traces.owned(cluster().tasks[0].task)
    owned.enter(Phase.NAMING)
    takeover.abandon(owned)


def test_a_collector_gets_spans_in_batches_with_who_sent_them(collector: Collector) -> None:
    worker = traces(f"{collector.url}/")
    for _ in range(3):
        give_up(worker)
    worker.close()
    (request,) = collector.taken
    (of_resource,) = request.resource_spans
    resource = plain(of_resource.resource.attributes)
    assert (resource["service.name"], resource["service.instance.id"]) == ("auctions", "auctions.host-0")
    assert sorted(name for name, _ in collector.spans()) == ["falkirk.naming"] * 3 + ["falkirk.takeover"] * 3


def test_the_environment_alone_says_where_and_how(collector: Collector, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,deployment.environment.name=test")
    worker = traces()
    give_up(worker)
    worker.close()
    resource = plain(collector.taken[0].resource_spans[0].resource.attributes)
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("shop", "test")

    environment.setenv("OTEL_TRACES_SAMPLER", "always_off")
    worker = traces()
    give_up(worker)
    worker.close()
    assert len(collector.taken) == 1


def test_a_collector_that_refuses_is_said_once_and_so_is_that_it_takes_spans_again(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.code = 401
    worker = traces(collector.url.replace("//", "//ann:hu@sh@"))
    assert isinstance(worker, Spans)
    for _ in range(2):
        give_up(worker)
        worker._provider.force_flush()
    collector.code = 200
    give_up(worker)
    worker.close()
    refused = "Failed to export spans batch code: 401, reason: Unauthorized"
    assert [(r.name, r.getMessage()) for r in caplog.records if r.levelno >= logging.WARNING] == [
        ("falkirk.kafka", f"spans cannot be sent to {collector.url}, and are dropped until they can ({refused})"),
        ("falkirk.kafka", f"spans are sent to {collector.url} again; at least 4 were dropped"),
    ]


def test_a_collector_that_is_away_holds_nobody_up(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    environment.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    environment.setattr("falkirk.runtime.observe.spans.LAST", 0.1)
    worker = traces("http://127.0.0.1:1")
    began = time.monotonic()
    for _ in range(20):
        give_up(worker)  # far more than fit
    worker.close()
    assert time.monotonic() - began < 5  # one batch alone is tried for ten seconds
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


# -- on and off --------------------------------------------------------------------------------------------------------


def test_nobody_listens_where_nobody_is_named_or_all_is_switched_off(environment: pytest.MonkeyPatch) -> None:
    assert traces() is SILENT
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
        with environment.context() as there:
            there.setenv(name, value)
            assert traces() is SILENT
            assert traces("http://127.0.0.1:1") is SILENT


def test_a_worker_whom_nobody_listens_to_does_not_import_opentelemetry() -> None:
    code = "import sys, falkirk.runtime.processes.process; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    environment = {name: value for name, value in os.environ.items() if name not in PLACES}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_opentelemetry_a_worker_that_is_to_send_spans_is_refused_and_one_that_might_goes_on(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setattr("falkirk.runtime.observe.traces.installed", lambda: False)
    with pytest.raises(ConfigError, match=r"spans need OpenTelemetry\n.*--traces\n.*falkirk\[otel\]"):
        traces("http://127.0.0.1:1")
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert traces() is SILENT
    (record,) = caplog.records
    assert record.getMessage().startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, and no spans are sent")


def test_what_is_no_url_of_a_collector_is_refused_before_anything_is_loaded() -> None:
    done = CliRunner().invoke(run, ["nothing:flow", "--brokers", "127.0.0.1:1", "--traces", "collector:4317"])
    assert isinstance(done.exception, ConfigError)
    assert "'collector:4317' is not a URL\n  where: --traces\n" in str(done.exception)


def test_what_opentelemetry_cannot_use_is_said(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    with pytest.raises(ConfigError, match=r"OpenTelemetry's settings cannot be used: max_queue_size"):
        traces("http://127.0.0.1:1")
