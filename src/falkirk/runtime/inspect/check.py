"""Preflight checks of a flow: everything that it needs is tried, and nothing that is made stays.

brokers ──▶ sources ──▶ records ──▶ topics and tasks ──▶ rights          on the cluster
state directory, checkpoint store, Spark                                 beside it
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec
from confluent_kafka import Message

from falkirk.checkpoint.ids import OwnerId, TopicPartition, cluster_of, name_of
from falkirk.connectors.java import find_java
from falkirk.connectors.kafka.admin.acls import may_write_as, rights_on_groups, rights_on_topics
from falkirk.connectors.kafka.admin.topic_settings import COMPACTED, FOREVER
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.clocks import read_clock
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.peek import TopicPeek
from falkirk.connectors.spark.master import check_master
from falkirk.errors import ClusterError, ConfigError, DiskError, FalkirkError, SourceError
from falkirk.runtime.app import outlets
from falkirk.runtime.app.app import check_fit, dated_by_writers
from falkirk.runtime.app.needs import NeededTopic, Right, needed_topics, rights
from falkirk.runtime.app.warnings import expired, one_task, unbounded
from falkirk.runtime.host.clock import WallClock, ahead_words, check_clock
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.inputs import topics_now
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.runtime.layout.preflight import HOW, Preflight, others, preflight, resolved
from falkirk.runtime.layout.progress import last_records, last_step
from falkirk.runtime.layout.wanted_topics import made_topics
from falkirk.runtime.messages.deleted import gone_error
from falkirk.runtime.messages.epochs import batch_part
from falkirk.state.objects import try_out
from falkirk.stream.access.endpoints import View, view_of, views_of
from falkirk.stream.access.producing import sources_of
from falkirk.stream.definition.names import control_topic, steps_topic
from falkirk.stream.definition.pattern import Pattern, reads
from falkirk.stream.operators.sources.source import Source, other_key
from falkirk.stream.stages.plan import USE_IT, Plan
from falkirk.wording import counted

RECORDS = 100
"""This many of the last records of a source are decoded."""
ROOM = 1 << 30
"""Bytes that the state directory's disk should have free."""

KEPT = {"changelog": "compact", "steps": "delete", "edge": "delete", "epochs": "delete"}
"""The cleanup policies that the app's own topics need."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    what: str
    ok: bool
    words: str
    hint: str = ""
    warning: bool = False
    """The flow runs, and may do something else than its user expects."""


def check(plan: Plan, settings: Settings) -> Iterator[Finding]:
    """Run all checks, and yield each result as it comes."""
    topics = Topics(settings.cluster())
    reached = yield from tried("brokers", lambda: _brokers(topics))
    for name in others(plan):
        found = yield from tried(f"brokers of {name}", partial(_brokers_of, name, topics))
        reached = reached and found
    if reached:
        yield from _on_the_cluster(plan, settings, topics)
    yield from tried("state directory", lambda: _state_dir(Path(settings.state_dir)))
    yield from tried("checkpoint store", lambda: _checkpoints(settings))
    for output, what in ((o, o.outlet.kind) for stage in plan.stages for o in stage.outputs if o.outlet is not None):
        yield from tried(f"{what} of {output.id}", partial(outlets.try_out, plan.app, output, settings.databases))
    if plan.batches:
        yield from tried("Spark", lambda: _spark(settings))


def tried(what: str, trial: Callable[[], str]) -> Generator[Finding, None, bool]:
    """Run one check; returns whether it succeeded."""
    try:
        yield Finding(what, True, trial())
    except FalkirkError as error:
        yield Finding(what, False, f"{error.what}{f' ({error.where})' if error.where else ''}", error.hint)
        return False
    return True


def _on_the_cluster(plan: Plan, settings: Settings, topics: Topics) -> Iterator[Finding]:
    plan = resolved(plan, settings, topics)
    views = [view for view in views_of(plan) if view.kind in ("source", "table")]
    read = dict.fromkeys(i.topic for part in plan.parts for i in part.inputs if i.kind == "source")
    read |= dict.fromkeys(table.source.topic for table in plan.shared)
    made = {o.topic for part in plan.parts for o in part.outputs}
    for view in filter(None, (view_of(views, topic) for topic in read)):
        if view.kind == "table" and view.topic in made and not topics.describe([view.topic]):
            yield Finding(
                f"table {view.topic}", True, "the flow writes it; it is made at the start, and empty at first"
            )
            continue
        if view.topic in made_topics(plan) and not topics.describe([view.topic]):
            yield Finding(f"{view.kind} {view.topic}", True, "it is made at the start, for requests over HTTP")
            continue
        if (yield from tried(f"{view.kind} {view.topic}", partial(_source, view, topics))):
            keyed = [s for s in sources_of(plan).values() if s.checked and s.key and reads(s.topics, view.topic)]
            yield from tried(f"records of {view.topic}", partial(_records, view, keyed, settings, topics))
    needed: list[NeededTopic] = []
    warned: list[Finding] = []
    known: list[LayoutRecord] = []

    def lay_out() -> str:
        needed.extend(needed_topics(plan, settings, topics))
        with closing(ControlTopic(settings.cluster(), control_topic(settings.prefix, plan.app))) as control:
            found = preflight(plan, settings, topics, control)
        check_fit(found, steps_topic(settings.prefix, plan.app))
        warned.extend(_warnings(found, topics))
        known.extend([] if found.past.layout is None else [found.past.layout])
        return (
            f"{counted(found.tasks, 'task')}, {'as the app has had so far' if found.past.layout else 'for a new app'}"
        )

    if (yield from tried("tasks", lay_out)) and known:
        yield from tried("positions", lambda: _positions(plan, known[0], settings, topics))
    yield from warned
    if missing := [topic for topic in needed if not topic.exists]:
        yield from tried("missing topics", lambda: _can_be_made(missing, settings, topics))
    if own := [topic for topic in needed if topic.exists and topic.role in KEPT]:
        yield from tried("own topics", lambda: _own(own, topics))
    yield from tried("clock", partial(_clock, plan, settings, topics))
    there, wanted = {topic.name for topic in needed if topic.exists}, rights(plan, settings)
    for name in ["", *others(plan)]:
        mine = {name_of(topic) for topic in there if cluster_of(topic) == name}
        asked = [right for right in wanted if right.cluster == name]
        what = f"rights in {name}" if name else "rights"
        yield from tried(what, partial(_rights, asked, settings.cluster().of(name), mine))


def _positions(plan: Plan, known: LayoutRecord, settings: Settings, topics: Topics) -> str:
    now = topics_now(known, topics)
    steps = steps_topic(settings.prefix, known.app)
    tasks = sum(stage.tasks for stage in known.stages)
    last = map(last_step, last_records(settings, [TopicPartition(steps, i) for i in range(tasks)]))
    for error in (error for step in last if step is not None for error in now.deleted(step.division)):
        raise error
    for batch in plan.batches:
        if batch.regime.history == "new" and batch.id in known.batches:
            with batch_part(plan.app, batch.id, settings, topics) as part:
                if gone := part.deleted(topics):
                    raise gone_error(plan.app, batch.id, gone)
    return "all that the app has not read yet is there"


def _warnings(found: Preflight, topics: Topics) -> Iterator[Finding]:
    hint = "group by a column with more values first, or give the flow one partition"
    for words in one_task(found.plan, found.sizes):
        yield Finding("one task", True, words, hint, warning=True)
    for words, bound in unbounded(found.plan):
        yield Finding("unbounded state", True, words, bound, warning=True)
    for words in found.plan.unused:
        yield Finding("unused stream", True, words, USE_IT, warning=True)
    if found.past.layout is None:
        for words in expired(found.plan, topics, WallClock().now()):
            yield Finding("retention", True, words, "give the sink's topic a longer retention.ms", warning=True)


def _brokers_of(cluster: str, topics: Topics) -> str:
    return _brokers(topics.of(cluster))


def _brokers(topics: Topics) -> str:
    topics.check_reachable(timeout=5.0)
    nodes = topics.nodes()
    return f"{len(nodes)}: {', '.join(nodes)}"


def _source(view: View, topics: Topics) -> str:
    if view.topic == str(view.topics) and isinstance(view.topics, Pattern):
        raise ClusterError("no topic matches", hint="create one, or correct the pattern: it must match full names")
    found = topics.describe([view.topic]).get(view.topic)
    if found is None:
        raise ClusterError("it does not exist", hint=f"{HOW}, or pass topic= to the {view.kind} if it has another name")
    config = topics.configs([view.topic])[view.topic]
    shown = [f"{name}={config[name]}" for name in ("cleanup.policy", "retention.ms") if name in config]
    return f"{counted(found.partitions, 'partition')}, {', '.join(shown)}"


def _records(view: View, sources: Sequence[Source], settings: Settings, topics: Topics) -> str:
    with closing(TopicPeek(settings.cluster(), topics, topics.there(view.topic, HOW))) as look:
        messages = look.last(RECORDS)
    for source in sources:
        _keys(source, view.topic, messages)
    rows = view.rows(messages)  # type: ignore[arg-type]  # the client's types allow for what no record is
    wrong = [row for row in rows if row.unreadable]
    words = f"{len(rows) - len(wrong)} of the last {len(rows)} decode"
    if wrong and len(wrong) == len(rows):
        place = f"partition {wrong[0].partition}, offset {wrong[0].offset}"
        raise SourceError(
            f"none of the last {len(rows)} decodes: {wrong[0].unreadable}",
            where=place,
            hint="are key and value of these formats?",
        )
    return (
        f"{words}; the others go to the dead letters: {wrong[0].unreadable}"
        if wrong
        else words
        if rows
        else "there are none yet"
    )


def _keys(source: Source, topic: str, messages: Sequence[Message]) -> None:
    """A run would end at a record whose key is not that of its column, if it read it first in a step. Raises SourceError."""
    assert source.key is not None
    decoded = source.value.decode([m.value() for m in messages])
    bad = {i for i, _ in decoded.bad}
    good = [m for i, m in enumerate(messages) if i not in bad]
    for message, spelt in zip(good, source.key.encode(decoded.frame), strict=True):
        if (found := message.key()) != spelt:
            place = message.partition() or 0, message.offset() or 0
            raise other_key(source, found, spelt, topic, *place)


def _can_be_made(missing: list[NeededTopic], settings: Settings, topics: Topics) -> str:
    for topic in missing:
        try:
            topics.try_to_create(topic.name, topic.partitions, settings.replication, topic.config)
        except ClusterError as error:
            raise ClusterError(
                error.what,
                where=error.where,
                hint=f"{error.hint}; falkirk topics APP:FLOW prints what an administrator is to do",
            ) from error
    return f"{len(missing)} are made at the start: {', '.join(topic.name for topic in missing)}"


def _own(own: list[NeededTopic], topics: Topics) -> str:
    configs = topics.configs(topic.name for topic in own)
    for topic in own:
        config, policy = configs[topic.name], KEPT[topic.role]
        wanted: Mapping[str, str] = COMPACTED if policy == "compact" else FOREVER
        must = {name: wanted[name] for name in ("cleanup.policy", "retention.ms", "retention.bytes") if name in wanted}
        wrong = {name: config.get(name, "") for name, value in must.items() if config.get(name) != value}
        if wrong:
            raise ClusterError(
                f"{topic.name} forgets what the app needs: {', '.join(f'{k}={v}' for k, v in wrong.items())}",
                hint=f"set {', '.join(f'{name}={must[name]}' for name in wrong)} (kafka-configs.sh --alter)",
            )
    dated = dated_by_writers([topic.name for topic in own], configs)
    older = f"; the next start lets the broker date the records of {', '.join(dated)}" if dated else ""
    return f"{len(own)}, with the settings that they need{older}"


def _clock(plan: Plan, settings: Settings, topics: Topics) -> str:
    control = control_topic(settings.prefix, plan.app)
    reading = None if not topics.describe([control]) else read_clock(settings.cluster(), control, "check")
    if reading is None:
        return "not compared yet: that takes the app's control topic, which the first start makes"
    check_clock(reading, settings.clock_bound_ms)
    return f"this host's is {ahead_words(reading.ahead)}"


def _rights(wanted: Sequence[Right], cluster: Cluster, there: set[str]) -> str:
    of_topics = rights_on_topics(cluster, there)
    of_groups = rights_on_groups(cluster, [right.name for right in wanted if right.resource == "group"])
    missing: list[str] = []
    for right in wanted:
        if right.resource == "transactional-id":
            may_write_as(cluster, OwnerId(f"{right.name}check"))
            continue
        has = of_topics if right.resource == "topic" else of_groups
        names = [n for n in has if n == right.name or (right.prefixed and n.startswith(right.name))]
        for name in names:
            missing += [f"{o} on {right.resource} {name}" for o in right.operations if o not in has[name]]
    if missing:
        raise ClusterError(
            f"the app's user lacks {', '.join(missing)}",
            hint="falkirk topics APP:FLOW --acls --user NAME prints the rights that it needs",
        )
    transactions = any(right.resource == "transactional-id" for right in wanted)
    what = "topics, groups and transactions" if transactions else "topics and groups"
    return f"of {what}, as far as they are there"


def _state_dir(folder: Path) -> str:
    there = folder.exists()
    above = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        trial = above / f".falkirk-check-{os.getpid()}"
        trial.write_bytes(b"x" * 4096)
        trial.unlink()
        free = shutil.disk_usage(above).free
    except OSError as error:
        raise DiskError(
            f"cannot be written: {error.strerror}", where=str(folder), hint="choose another with --state-dir"
        ) from error
    if free < ROOM:
        raise DiskError(
            f"{free / 1e6:,.0f} MB are free", where=str(folder), hint="free some space, or choose another disk"
        )
    return f"{folder}, {free / 1e9:,.1f} GB free{'' if there else '; it is made at the start'}"


def _checkpoints(settings: Settings) -> str:
    if not settings.checkpoints:
        return "a folder in the state directory: on this host alone"
    try_out(settings.checkpoints)
    return f"{settings.checkpoints}, written, read and deleted"


def _spark(settings: Settings) -> str:
    if not find_spec("pyspark"):
        raise ConfigError("PySpark is not installed", hint="pip install 'falkirk[spark]'")
    java = find_java("Spark")
    check_master(settings.spark)
    return f"{settings.spark}, {java}"
