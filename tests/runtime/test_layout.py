from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

import falkirk as fk
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.errors import ClusterError, FalkirkError, SourceError, StateError
from falkirk.runtime.app.app import App, prepare, prepared
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout import compatibility, layout
from falkirk.runtime.layout.deleting import read_back
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord
from falkirk.runtime.layout.preflight import check_sinks, check_sources, growing_of
from falkirk.stream.definition.names import control_topic
from falkirk.stream.stages.plan import Plan, Stage
from falkirk.stream.stages.stage import PhysicalStage

STATS = StageRecord("stats", 4, "eager", True, "f00", "1: stats v1: n:Int64", ("bids",), ("out",))
KNOWN = LayoutRecord(
    1,
    "app",
    (STATS,),
    {
        "bids": TopicRecord("id-bids", 4, "source"),
        "out": TopicRecord("id-out", 4, "sink"),
        "falkirk.app.steps": TopicRecord("id-steps", 4, "steps"),
    },
)
FOUND = {name: TopicInfo(name, topic.id, topic.partitions) for name, topic in KNOWN.topics.items()}


def changed(name: str, **fields: object) -> dict[str, TopicInfo]:
    was = FOUND[name]
    return {**FOUND, name: TopicInfo(**{"name": name, "id": was.id, "partitions": was.partitions, **fields})}  # type: ignore[arg-type]


def without(name: str) -> dict[str, TopicInfo]:
    return {n: info for n, info in FOUND.items() if n != name}


@pytest.mark.parametrize("found", [FOUND, changed("out", id="another"), changed("out", partitions=8), without("out")])
def test_topics_as_they_were_are_accepted_and_a_sink_may_be_made_anew_or_grow(found: dict[str, TopicInfo]) -> None:
    compatibility.check_topics(KNOWN, found)


def test_a_source_whose_rows_need_not_stay_together_may_grow() -> None:
    compatibility.check_topics(KNOWN, changed("bids", partitions=6), {"bids"})
    with pytest.raises(SourceError, match="had 4 and has 3"):
        compatibility.check_topics(KNOWN, changed("bids", partitions=3), {"bids"})


class With(Topics):
    """A cluster all of whose topics have a policy of cleaning up."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {"cleanup.policy": self.policy} for name in names}


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize(
    ("options", "summed"),
    [
        ({"changes": "weights"}, True),
        ({"changes": "debezium"}, True),
        ({"changes": "debezium", "key": "id"}, False),
        ({"changes": "upsert", "key": "id"}, False),
        ({}, False),
    ],
)
def test_a_source_that_adds_up_its_records_is_not_read_from_a_compacted_topic(
    options: dict[str, Any], summed: bool, policy: str
) -> None:
    flow = fk.Flow("app")
    rows = flow.source("bids", value=fk.Json({"id": int, "weight": int}), **options)
    rows.sink("out", key="id", value=fk.Json(), changes="weights" if options == {"changes": "weights"} else None)
    if not summed or policy == "delete":
        check_sources(flow.plan(), FOUND, With(policy))
        return
    with pytest.raises(
        SourceError, match="topic 'bids' is compacted, and the rows of source 'bids' are the sum of all"
    ):
        check_sources(flow.plan(), FOUND, With(policy))


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("changes", [None, "debezium", "weights"])
def test_weights_are_not_written_to_a_compacted_topic(changes: Any, policy: str) -> None:
    flow = fk.Flow("app")
    counts = flow.source("bids", key="id", value=fk.Json({"id": int})).group_by("id", id="n").agg(n=fk.len())
    counts.sink("out", key="id", value=fk.Json(), changes=changes)
    if changes != "weights" or policy == "delete":
        check_sinks(flow.plan(), FOUND, With(policy))
        return
    with pytest.raises(ClusterError, match="topic 'out' is compacted, and the rows of sink 'out' are the sum of all"):
        check_sinks(flow.plan(), FOUND, With(policy))


def test_only_sources_of_streams_grow_whose_rows_need_not_stay_together() -> None:
    flow, value = fk.Flow("app"), fk.Json({"id": int})
    for name in ("free", "table", "both"):
        flow.source(name, value=value).sink(f"{name}-copies", value=fk.Json())
    flow.source("spread", key="id", value=value, repartition=True).sink("spread-copies", value=fk.Json())
    flow.source("keyed", key="id", value=value).sink("keyed-copies", value=fk.Json())
    flow.source("last", key="id", value=value, changes="upsert").sink("last-copies", key="id", value=fk.Json())
    weighted = flow.source("weighted", value=fk.Json({"id": int, "weight": int}), changes="weights")
    weighted.group_by("id", id="n").agg(n=fk.len()).sink("weighted-copies", key="id", value=fk.Json())
    flow.source("again", topic="both", key="id", value=value).sink("more-copies", value=fk.Json())
    named = flow.table("names", topic="table", key="id", value=fk.Json({"id": int, "name": str}), broadcast=True)
    flow.source("looks", value=value).lookup(named, on="id").sink("named", value=fk.Json())
    assert growing_of(flow.plan()) == {"free", "spread", "looks"}


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        (changed("bids", partitions=6), SourceError, "partitions were added to topic 'bids': it had 4 and has 6"),
        (changed("bids", id="x"), SourceError, "topic 'bids' was deleted and recreated"),
        (without("bids"), SourceError, "topic 'bids' is gone"),
        (without("falkirk.app.steps"), StateError, "topic 'falkirk.app.steps' is gone"),
        (changed("falkirk.app.steps", id="x"), StateError, "topic 'falkirk.app.steps' was deleted and recreated"),
        (changed("out", partitions=2), SourceError, "topic 'out' has 2 partitions, but the app writes 4"),
    ],
)
def test_a_topic_that_is_another_now_is_refused(
    found: dict[str, TopicInfo], error: type[FalkirkError], words: str
) -> None:
    with pytest.raises(error) as raised:
        compatibility.check_topics(KNOWN, found)
    assert raised.value.what.startswith(words)
    assert raised.value.where
    assert raised.value.hint


def stage(**fields: object) -> StageRecord:
    return msgspec.structs.replace(STATS, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "now",
    [
        stage(outputs=("out", "a-new-sink")),
        stage(id="stats"),
        stage(fingerprint="f01", state="1: stats v1: n:Int64\n2: tops v1: top:Int64"),
    ],
)
def test_a_change_that_loses_no_state_is_let_through(now: StageRecord) -> None:
    compatibility.check_stages(KNOWN, [now])


def test_a_source_of_several_topics_may_come_to_read_more_and_never_less() -> None:
    more = stage(inputs=("bids", "offers"), several=("bids", "offers"))
    compatibility.check_stages(KNOWN, [more])
    known = msgspec.structs.replace(KNOWN, stages=(more,))
    with pytest.raises(SourceError, match="it read offers, and does not now"):
        compatibility.check_stages(known, [stage(several=("bids",))])


def test_layouts_that_differ_in_topics_that_joined_are_told_from_those_of_another_flow() -> None:
    one, other = stage(several=("bids",)), stage(inputs=("bids", "offers"), several=("bids", "offers"))
    assert compatibility.differ_in_topics([one], [other])
    assert not compatibility.differ_in_topics([one], [one])
    assert not compatibility.differ_in_topics([one], [msgspec.structs.replace(other, outputs=("elsewhere",))])
    assert not compatibility.differ_in_topics(
        [one], [msgspec.structs.replace(other, inputs=("bids", "offers", "asks"))]
    )


@pytest.mark.parametrize("batch", [True, False])
def test_a_sink_does_not_move_between_a_batch_part_and_the_stages(batch: bool) -> None:
    flow = fk.Flow("app")
    flow.source("bids", value=fk.Json({"id": int})).with_regime(fk.Batch() if batch else fk.EagerCheckpoint()).sink(
        "out", value=fk.Json()
    )
    plan = flow.plan("falkirk")
    streamed, other = KNOWN, msgspec.structs.replace(KNOWN, stages=(stage(outputs=("elsewhere",)),))
    compatibility.check_moved_sinks(other if batch else streamed, plan)
    with pytest.raises(StateError, match="its records would be there twice") as raised:
        compatibility.check_moved_sinks(streamed if batch else other, plan)
    assert ("stage 'stats', and would be written by batch part" in raised.value.what) == batch


@pytest.mark.parametrize("history", ["new", "whole"])
def test_a_batch_part_does_not_write_what_one_of_another_id_has_written(history: Any) -> None:
    """It would read all of its sources again, and replace nothing: rows of what is new were there twice."""

    def flow(*ids: str) -> fk.Flow:
        flow = fk.Flow("app", regime=fk.Batch(history=history))
        bids = flow.source("bids", key="id", value=fk.Json({"id": int}))
        for id_ in ids:
            bids.group_by("id", id=id_).agg(n=fk.len()).sink(f"of-{id_}", topic="out", key="id", value=fk.Json())
        return flow

    app = fk.testing.App(flow("usual"))
    app.send("bids", [{"id": 1}])
    app.run()
    with pytest.raises(
        StateError, match="written by batch part 'usual', and would be written by the new batch part 'same'"
    ):
        app.change(flow("same"))
    if history == "new":
        app.change(flow("usual", "more"))
    app.change(flow("usual"))
    app.send("bids", [{"id": 1}])
    app.run()
    assert [row["n"] for row in app.sinks["of-usual"].rows] == [1, 1 if history == "new" else 2]


def test_a_new_stage_is_let_through() -> None:
    compatibility.check_stages(KNOWN, [stage(), stage(id="more")])


def test_state_is_lost_only_where_it_was_said_that_it_may_be() -> None:
    dropped = stage(fingerprint="f01", state="~1: stats v1: n:Int64\n2: tops v1: top:Int64")
    with pytest.raises(StateError) as raised:
        compatibility.check_stages(KNOWN, [dropped], ["tops"])
    assert "--apply --drop stats" in (raised.value.hint or "")
    compatibility.check_stages(KNOWN, [dropped], ["stats"])
    again = msgspec.structs.replace(KNOWN, stages=(dropped,))
    back = stage(fingerprint="f02", state="~1: stats v1: n:Int64\n2: tops v1: top:Int64\n3: stats v1: n:Int64")
    with pytest.raises(StateError, match="schema has changed"):
        compatibility.check_stages(again, [back])
    compatibility.check_stages(again, [back], ["stats"])


def test_all_that_is_refused_is_named_at_once() -> None:
    tops = stage(id="tops", state="2: tops v1: top:Int64", inputs=("asks",))
    lazy = stage(id="slow", regime="lazy", state="3: slow v1: n:Int64")
    kept = stage(id="kept", state="4: kept v1: n:Int64", inputs=("asks",))
    known = msgspec.structs.replace(KNOWN, stages=(STATS, tops, lazy, kept))
    now = [
        stage(state="~1: stats v1: n:Int64\n5: stats v2: n:Float64"),
        stage(id="tops", state="~2: tops v1: top:Int64\n6: tops v2: top:Float64", inputs=("asks",)),
        stage(id="slow", regime="lazy", state="~3: slow v1: n:Int64\n7: slow v2: n:Float64"),
        stage(id="kept", state="4: kept v1: n:Int64", inputs=("bids",)),
    ]
    with pytest.raises(StateError) as raised:
        compatibility.check_stages(known, now)
    error = raised.value
    for words in ("− stats v1", "+ tops v2", "− slow v1", "stage 'kept' have changed: it read asks", "it reads bids"):
        assert words in error.what
    assert error.where == "stage stats, stage tops\nstage slow, in the lazy regime\nstage kept"
    assert "--apply --drop stats --drop tops" in error.hint
    assert "--rebuild slow" in error.hint

    with pytest.raises(StateError) as raised:
        compatibility.check_stages(known, now, ["stats", "tops"])
    assert "stats" not in str(raised.value)


def test_a_sink_that_the_flow_reads_is_told_from_the_others() -> None:
    both = msgspec.structs.replace(
        KNOWN,
        stages=(STATS, stage(id="more", inputs=("out",), outputs=("last",))),
        topics={**KNOWN.topics, "out": TopicRecord("id-out", 4, "source"), "last": TopicRecord("id-last", 4, "sink")},
    )
    assert read_back(both) == ("out",)
    assert read_back(KNOWN) == ()


def test_a_lazy_stage_keeps_its_state_as_it_is() -> None:
    lazy = msgspec.structs.replace(KNOWN, stages=(stage(regime="lazy"),))
    more = stage(regime="lazy", fingerprint="f01", state="1: stats v1: n:Int64\n2: tops v1: top:Int64")
    with pytest.raises(StateError) as raised:
        compatibility.check_stages(lazy, [more], ["stats", "tops"])
    assert raised.value.where == "stage stats, in the lazy regime"


def test_a_steps_topic_that_grew_is_another_runs_doing() -> None:
    grown = changed("falkirk.app.steps", partitions=6)
    compatibility.check_topics(KNOWN, grown)
    with pytest.raises(StateError, match="it had 4 tasks, and has 6 now"):
        compatibility.check_alone(KNOWN, grown)
    compatibility.check_alone(KNOWN, FOUND)


@pytest.mark.parametrize(
    ("now", "error", "words"),
    [
        (
            [stage(fingerprint="f01", state="~1: stats v1: n:Int64\n2: stats v1: n:Float64")],
            StateError,
            "− stats v1: n:Int64",
        ),
        (
            [stage(fingerprint="f01", state="~1: stats v1: n:Int64\n2: stats v1: n:Float64")],
            StateError,
            "+ stats v1: n:Float64",
        ),
        ([stage(inputs=("asks",))], SourceError, "it read bids, and does not now; it reads asks, and did not"),
        ([stage(regime="lazy")], StateError, "the regime of stage 'stats' has changed from eager to lazy"),
        ([stage(id="other")], StateError, "a different flow has already used the name 'app'"),
    ],
)
def test_a_stage_that_cannot_go_on_is_refused(now: list[StageRecord], error: type[FalkirkError], words: str) -> None:
    with pytest.raises(error) as raised:
        compatibility.check_stages(KNOWN, now)
    assert words in raised.value.what
    assert raised.value.where
    assert raised.value.hint


def test_a_removed_stage_is_refused() -> None:
    two = msgspec.structs.replace(KNOWN, stages=(STATS, stage(id="more")))
    with pytest.raises(StateError, match="more was removed"):
        compatibility.check_stages(two, [STATS])


def test_a_lazy_stage_keeps_its_outputs_and_a_stage_without_state_need_not_keep_its_regime() -> None:
    lazy = msgspec.structs.replace(KNOWN, stages=(stage(regime="lazy"),))
    with pytest.raises(StateError, match="the outputs of stage 'stats' have changed from out to out, more"):
        compatibility.check_stages(lazy, [stage(regime="lazy", outputs=("out", "more"))])
    stateless = msgspec.structs.replace(KNOWN, stages=(stage(stateful=False),))
    compatibility.check_stages(stateless, [stage(stateful=False, regime="lazy")])


def test_a_layout_of_a_later_format_is_refused_and_so_is_what_is_none() -> None:
    later = msgspec.json.encode(msgspec.structs.replace(KNOWN, format=2))
    with pytest.raises(StateError, match="has format 2, but this Falkirk reads format 1"):
        layout.decode_layout(later)
    with pytest.raises(StateError, match="cannot be read"):
        layout.decode_layout(b"{}")


def test_a_layout_with_an_unknown_regime_names_the_falkirk_that_wrote_it() -> None:
    stages = (msgspec.structs.replace(STATS, regime="lockstep"),)
    later = msgspec.json.encode(msgspec.structs.replace(KNOWN, stages=stages, falkirk="9.1"))
    with pytest.raises(StateError, match="stage 'stats' has the regime 'lockstep'") as raised:
        layout.decode_layout(later)
    assert raised.value.where == "layout 1 of app 'app', written by Falkirk 9.1"


def test_a_stage_that_begins_to_keep_state_is_known_by_what_it_reads_and_numbers_of_tables_are_not_given_again() -> (
    None
):
    def plan(*ids: str) -> list[Stage]:
        flow = fk.Flow("app")
        bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64}))
        bids.sink("copies", key="auction", value=fk.Json())
        for id_ in ids:
            bids.group_by("auction", id=id_).agg(n=fk.len()).sink(f"out-{id_}", key="auction", value=fk.Json())
        return list(flow.plan().stages)

    known: LayoutRecord | None = None
    found = []
    for ids in ((), ("b",), ("a", "b"), ("a",), ("a", "b")):
        (now,) = compatibility.as_recorded(known, plan(*ids))
        known = LayoutRecord(1, "app", compatibility.stage_records([now], {now.id: 4}), {})
        assert isinstance(now, PhysicalStage)
        found.append((now.id, {name: n for (name, _), n in now.tables.items()}))
    assert found == [
        ("bids", {}), ("bids", {"b": 1}), ("bids", {"a": 2, "b": 1}), ("bids", {"a": 2}), ("bids", {"a": 2, "b": 3}),
    ]  # fmt: skip


# -- on a broker -------------------------------------------------------------------------------------------------------


class Cluster:
    """A source of four partitions, and flows that read it."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.prefix, self.name = prefix, f"{prefix}app"
        self.settings = Settings(brokers, str(folder))
        self.topics = Topics(self.settings.cluster())
        self.admin = AdminClient({"bootstrap.servers": brokers})
        self.topics.create(f"{prefix}bids", 4, 1, {})

    def plan(self, build: Callable[[fk.Stream, str], None]) -> Plan:
        flow = fk.Flow(self.name)
        value = fk.Json({"auction": fk.Int64, "price": fk.Int64})
        build(flow.source(f"{self.prefix}bids", key="auction", value=value), self.prefix)
        return flow.plan()

    def flow(self, build: Callable[[fk.Stream, str], None]) -> App:
        return prepare(self.plan(build), self.settings, self.topics)

    def layout(self) -> LayoutRecord:
        control = ControlTopic(self.settings.cluster(), control_topic("falkirk", self.name))
        try:
            found = layout.read_layout(control)
        finally:
            control.close()
        assert found is not None
        return found


class LateToHear(Topics):
    """Asks brokers of which every second has not heard of topics that were made just now."""

    asked = 0

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self.asked += 1
        found = super().describe(names)
        return found if self.asked % 2 else {name: info for name, info in found.items() if "falkirk." not in name}


@pytest.fixture
def cluster(kafka: str, topic_prefix: str, tmp_path: Path) -> Cluster:
    return Cluster(kafka, topic_prefix, tmp_path)


def counts(bids: fk.Stream, prefix: str) -> None:
    bids.group_by("auction", id="counts").agg(n=fk.len()).sink(f"{prefix}counts", key="auction", value=fk.Json())


def tops(bids: fk.Stream, prefix: str) -> None:
    bids.filter(fk.col("price") > 1).with_regime(fk.LazyCheckpoint(), id="lazily").group_by("auction", id="tops").agg(
        n=fk.len()
    ).sink(f"{prefix}tops", key="auction", value=fk.Json())


@pytest.mark.kafka
def test_the_first_run_records_the_layout_and_the_next_ones_find_it_as_it_was(cluster: Cluster) -> None:
    app = cluster.flow(counts)
    first = cluster.layout()
    assert (first.number, first.app, first.shards, first.format) == (1, cluster.name, 1024, 1)
    assert [(s.id, s.tasks, s.regime) for s in first.stages] == [("counts", 4, "eager")]
    source = first.topics[f"{cluster.prefix}bids"]
    assert (source.partitions, source.role) == (4, "source")
    assert [b.task for b in cluster.flow(counts).tasks] == [b.task for b in app.tasks]
    assert cluster.layout() == first


@pytest.mark.kafka
def test_a_spare_makes_and_records_nothing(cluster: Cluster) -> None:
    """Its run may be refused by what it has not seen itself, and must then have changed nothing."""

    def found(build: Callable[[fk.Stream, str], None]) -> App | None:
        return prepared(cluster.plan(build), cluster.settings, cluster.topics)

    def own() -> list[str]:
        return [name for name in cluster.topics.names() if cluster.prefix in name]

    def both(bids: fk.Stream, prefix: str) -> None:
        counts(bids, prefix)
        tops(bids, prefix)

    assert found(counts) is None
    assert own() == [f"{cluster.prefix}bids"]

    app, first = cluster.flow(counts), cluster.layout()
    spare = found(counts)
    assert spare is not None
    assert (spare.recorded, spare.topics, spare.limits) == (app.recorded, app.topics, app.limits)
    assert [bound.task for bound in spare.tasks] == [bound.task for bound in app.tasks]
    before = own()
    assert found(both) is None
    assert own() == before
    cluster.topics.create(f"{cluster.prefix}tops", 4, 1, {})
    assert found(both) is None
    assert cluster.layout() == first
    cluster.flow(both)
    assert cluster.layout().number == 2
    assert found(both) is not None


@pytest.mark.kafka
def test_a_new_sink_is_recorded_as_the_next_layout_and_a_sink_that_grew_is_written_as_before(cluster: Cluster) -> None:
    def with_another_sink(bids: fk.Stream, prefix: str) -> None:
        stats = bids.group_by("auction", id="counts").agg(n=fk.len())
        stats.sink(f"{prefix}counts", key="auction", value=fk.Json())
        stats.sink(f"{prefix}more", key="auction", value=fk.Json())

    cluster.flow(counts)
    cluster.admin.create_partitions([NewPartitions(f"{cluster.prefix}counts", 9)])[f"{cluster.prefix}counts"].result()
    app = cluster.flow(with_another_sink)
    assert app.layout.partitions[f"{cluster.prefix}counts"] == 4
    now = cluster.layout()
    assert now.number == 2
    assert f"{cluster.prefix}more" in now.stages[0].outputs


@pytest.mark.kafka
def test_stages_told_in_another_order_keep_their_tasks(cluster: Cluster) -> None:
    def one_way(bids: fk.Stream, prefix: str) -> None:
        counts(bids, prefix)
        tops(bids, prefix)

    def the_other(bids: fk.Stream, prefix: str) -> None:
        tops(bids, prefix)
        counts(bids, prefix)

    places = {b.task.id: b.task.steps for b in cluster.flow(one_way).tasks}
    assert {b.task.id: b.task.steps for b in cluster.flow(the_other).tasks} == places
    assert cluster.layout().number == 1


@pytest.mark.kafka
def test_a_source_that_grew_or_was_made_anew_and_another_flow_of_the_name_are_refused_and_nothing_is_made(
    cluster: Cluster,
) -> None:
    def another(bids: fk.Stream, prefix: str) -> None:
        bids.group_by("price", id="prices").agg(n=fk.len()).sink(f"{prefix}prices", key="price", value=fk.Json())

    cluster.flow(counts)
    with pytest.raises(StateError, match="a different flow has already used the name"):
        cluster.flow(another)
    assert not cluster.topics.describe([f"{cluster.prefix}prices"])

    source = f"{cluster.prefix}bids"
    cluster.admin.create_partitions([NewPartitions(source, 6)])[source].result()
    with pytest.raises(SourceError, match="it had 4 and has 6"):
        cluster.flow(counts)
    cluster.topics.delete([source])
    cluster.topics.create(source, 4, 1, {})
    with pytest.raises(SourceError, match="was deleted and recreated"):
        cluster.flow(counts)


@pytest.mark.kafka
def test_of_two_layouts_with_one_number_the_first_in_the_log_counts(cluster: Cluster) -> None:
    cluster.flow(counts)
    first = cluster.layout()
    control = ControlTopic(cluster.settings.cluster(), control_topic("falkirk", cluster.name))
    rival = msgspec.structs.replace(first, falkirk="a rival's")
    try:
        assert layout.write_layout(control, rival) == first
        assert len(control.read(LAYOUT)) == 2
    finally:
        control.close()


def test_a_second_host_waits_for_a_broker_that_has_not_heard_of_what_the_first_one_made(cluster: Cluster) -> None:
    first = cluster.flow(counts)
    for asked in range(4):  # whichever of its questions is the first that such a broker answers
        cluster.topics = LateToHear(cluster.settings.cluster())
        cluster.topics.asked = asked
        assert [bound.task for bound in cluster.flow(counts).tasks] == [bound.task for bound in first.tasks]
