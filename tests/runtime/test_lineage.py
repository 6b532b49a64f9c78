"""From a record back to the sources, through exchanges and crashes, over the simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

import falkirk as fk
from falkirk.checkpoint.ids import TopicPartition
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.lineage_step import LineageNode, Tracer, sources_of, trimmed
from falkirk.runtime.layout.compatibility import stage_records
from falkirk.runtime.layout.layout import LayoutRecord, TopicRecord
from falkirk.runtime.layout.preflight import roles_of
from falkirk.stream.dataflow.provenance import provenance
from falkirk.stream.dataflow.records import Message
from falkirk.testing.cluster import Cluster

STEPS = "falkirk.through.steps"


@dataclass
class Simulated:
    """`falkirk.runtime.inspect.lineage_step.CommittedRecords`."""

    cluster: Cluster

    def begin(self, place: TopicPartition) -> int:
        return self.cluster.broker[place].start

    def between(self, place: TopicPartition, start: int, end: int | None) -> Sequence[Message]:
        found = self.cluster.read(place, max(start, self.begin(place)))
        return [m for m in found if end is None or m.offset() < end]


def tracer(app: fk.testing.App) -> Tracer:
    cluster = app._cluster
    sizes = {stage.id: 2 for stage in cluster.plan.stages}
    roles = roles_of(cluster.plan, Settings("", ""))
    topics = {name: TopicRecord(name, cluster.counts[name], role) for name, role in roles.items()}
    layout = LayoutRecord(1, "through", stage_records(cluster.plan.stages, sizes), topics)
    return Tracer("through", layout, "falkirk", Simulated(cluster))


@pytest.fixture
def through() -> fk.testing.App:
    """Each record goes through two exchanges, and says where it came from."""
    flow = fk.Flow("through")
    metadata = {"partition": "partition", "offset": "offset"}
    bids = flow.source("bids", value=fk.Json({"auction": int, "seller": int}), metadata=metadata)
    bids.repartition("auction").repartition("seller").sink("out", value=fk.Json())
    rows = [{"auction": i % 5, "seller": i % 3} for i in range(40)]
    return fk.testing.run(flow, {"bids": rows}, crash_at=[2, 5], partitions=2)


def test_the_ranges_behind_a_record_hold_what_it_comes_from_and_little_else(through: fk.testing.App) -> None:
    trace, records = tracer(through), through.sinks["out"].records
    assert len(records) == 40
    for record in records:
        origin = provenance(record.headers)
        assert origin is not None
        made = trace.trace(origin)
        assert made.clock is not None
        ranges = sources_of(made)
        value = record.value
        (own,) = [r for r in ranges if r.partition == value["partition"] and r.start <= value["offset"] < r.end]
        assert own.end - own.start <= 2 * 2  # two records of each partition a step
        assert [r.kind for r in made.reads] == ["edge"] * len(made.reads)
        for read in made.reads:
            assert len({(by.task, by.step) for by in read.by}) == len(read.by)


def test_what_is_trimmed_is_said_with_what_is_known_without_it(through: fk.testing.App) -> None:
    (first, *_, last) = through.sinks["out"].records
    origin = provenance(last.headers)
    assert origin is not None
    assert origin.step is not None
    for p in through._cluster.broker.partitions(STEPS):
        steps = [e.offset for e in p.entries if not e.marker and b'"type":"step"' in (e.value or b"")]
        p.delete(steps[-1])
    trace, oldest = tracer(through), provenance(first.headers)
    assert oldest is not None
    made = trace.trace(oldest)
    assert made.clock is None
    assert made.known is not None
    assert oldest.step is not None
    assert made.known[0] > oldest.step
    assert {r.kind for r in made.upto} == {"edge"}
    assert all(r.start == 0 for r in made.upto)
    never = trace.trace(fk.Provenance(task=oldest.task, step=10_000, sequence=0))
    assert (never.known, never.upto) == (made.known, [])
    assert (trimmed(made), trimmed(never)) == (True, False)
    assert trace.trace(fk.Provenance(task="nobody/0", step=1, sequence=0)) == LineageNode(task="nobody/0", step=1)


def test_what_a_correction_wrote_comes_from_what_the_steps_have_read_that_it_corrects() -> None:
    def flow(least: int) -> fk.Flow:
        flow = fk.Flow("through", regime=fk.LazyCheckpoint())
        bids = flow.source("bids", key="auction", value=fk.Json({"auction": int})).filter(fk.col("auction") >= least)
        bids.group_by("auction", id="counts").agg(n=fk.len()).sink("counts", key="auction", value=fk.Json())
        return flow

    app = fk.testing.App(flow(0), step_rows=2, on_divergence="correct")
    app.send("bids", [{"auction": i % 4} for i in range(8)])
    app.run()
    app.change(flow(3), host=True)
    last = app.sinks["counts"].records[-1]
    assert last.value is None
    origin = provenance(last.headers)
    assert origin is not None
    made = tracer(app).trace(origin)
    assert made.corrects == (1, 4)
    assert [(r.topic, r.start, r.end) for r in sources_of(made)] == [("bids", 0, 8)]
