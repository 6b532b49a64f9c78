"""A rescaling: the state of an app that has ended is divided among another number of tasks.

    ending written ──▶ stopped, fenced ──▶ drained? ──▶ rescale written ──▶ steps, edges, changelogs deleted, and made again
      nobody runs        no, or its end is not clean:                            ──▶ layout n+1 ──▶ first steps ──▶ states
      the app            ending withdrawn, nothing has changed                   ──▶ old versions, stores deleted ──▶ ending
                                                                                                               withdrawn

The old states are in the checkpoint store until all new ones are there, too. Whatever is killed in between: the same command
finishes it. A topic that is made again has another id, and so the app is another incarnation: no old store, version or worker
is taken for one of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from falkirk.checkpoint.ids import Offset
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.errors import ConfigError, StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import not_begun
from falkirk.runtime.layout.deleting import (
    AppResources,
    Tell,
    alone,
    announce,
    app_resources,
    check_stopped,
    check_unchanged,
    remove_topic,
    remove_workers,
    shut_out,
)
from falkirk.runtime.layout.layout import (
    ENDING,
    Ending,
    LayoutRecord,
    TopicRecord,
    check_not_ending,
    endings,
    read_app_record,
    write_layout,
)
from falkirk.runtime.rebuild.shadows import find_shadow
from falkirk.runtime.rescale.ends import check_drained, check_new, check_versions, ends_of, last_steps
from falkirk.runtime.rescale.record import Rescaling, read_rescaling, write_rescaling
from falkirk.runtime.rescale.states import NewTasks
from falkirk.runtime.rescale.target import MADE_AGAIN, Change, Target, check_cluster, target_of
from falkirk.state.objects import Leftovers, connect
from falkirk.stream.definition.names import control_topic, steps_topic
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted, listed


@dataclass(frozen=True, slots=True)
class Rescale:
    """What a rescaling will do."""

    found: AppResources
    target: Target
    begun: Rescaling | None
    """One that another command has begun. If that was killed before it had recorded this, it has changed nothing; or it has
    done everything, and not withdrawn `ending`."""

    @property
    def before(self) -> LayoutRecord:
        """The app as it was."""
        if self.begun is not None:
            return self.begun.before
        assert self.found.known.layout is not None
        return self.found.known.layout

    @property
    def changes(self) -> Sequence[Change]:
        """What changes in the stages."""
        return self.target.changes(self.before)


def look(plan: Plan, settings: Settings, topics: Topics) -> Rescale:
    """What there is to do. Raises ConfigError if there is no such app or it runs, StateError if it has not ended cleanly, or
    cannot be rescaled."""
    found = app_resources(plan.app, settings, topics)
    known = found.known
    if known.ending is not None and known.ending.what != "rescale":
        check_not_ending(plan.app, known)
    with closing(ControlTopic(settings.cluster(), control_topic(settings.prefix, plan.app))) as log:
        begun = read_rescaling(log) if known.ending is not None else None
    if begun is not None:
        target = target_of(plan, begun.before, settings, topics)
        if (dict(target.tasks), target.regimes) != (begun.tasks, begun.regimes):
            raise ConfigError(
                f"a rescaling of app {plan.app!r} to other numbers of tasks, or to other regimes, was begun, and is not "
                "finished: "
                + listed([f"{stage} {tasks} {begun.regimes[stage]}" for stage, tasks in begun.tasks.items()]),
                hint="finish it first, with the flow that it was begun with",
            )
        return Rescale(found, target, begun)
    if known.layout is None:
        raise not_begun(plan.app, known)
    if not known.layout.stages:
        raise ConfigError(f"app {plan.app!r} has no streams", hint="batch parts have no tasks that stay")
    check_stopped(plan.app, topics)
    target = target_of(plan, known.layout, settings, topics)
    return Rescale(found, target, None)


def check(rescale: Rescale, settings: Settings, topics: Topics) -> Rescaling:
    """The app has ended cleanly. Returns what is to be recorded. Raises StateError, SourceError and DiskError."""
    before = rescale.before
    check_cluster(rescale.target.plan, before, topics)
    if find_shadow(before.app, settings, topics) is not None:
        raise StateError(
            f"operators of app {before.app!r} are being rebuilt beside it, for the tasks that it has",
            where=f"app {before.app}",
            hint="take the rebuilt state over first, or delete that app",
        )
    last = last_steps(before, settings)
    check_drained(before, rescale.target.stages, last, settings, topics)
    check_versions(before, last, settings)
    ends = ends_of(before, last)
    check_new([stage for stage in rescale.target.plan.stages if stage.id not in ends], before, ends)
    return Rescaling(before, ends, dict(rescale.target.tasks), rescale.target.regimes)


def rescale(todo: Rescale, settings: Settings, topics: Topics, tell: Tell) -> None:
    """Do it, or finish it; if nothing is left to do, let the app run. Raises what `check` raises: then nothing is changed."""
    app = todo.before.app
    control = control_topic(settings.prefix, app)
    with alone(todo.found), closing(ControlTopic(settings.cluster(), control)) as log:
        if todo.begun is not None or todo.changes:
            begun = todo.begun or _begin(todo, log, settings, topics)
            now = read_app_record(log).layout
            if now is None or now.number == begun.before.number:
                now = _make_topics(todo, begun, log, settings, topics, tell)
            _divide(todo, begun, now, settings, tell)
            _tidy(todo, begun, settings, tell)
            write_rescaling(log, None)  # before `ending`: the next rescaling must not take it for its own
        log.append(LAYOUT, ENDING, None)


def _begin(todo: Rescale, log: ControlTopic, settings: Settings, topics: Topics) -> Rescaling:
    """From here on nobody runs the app, and nothing that sleeping workers had sent is still committed."""
    steps = todo.before.topics[steps_topic(settings.prefix, todo.before.app)]
    _check_first(todo, log, announce(log, "rescale"))
    try:
        check_unchanged(todo.found, read_app_record(log))
        shut_out(todo.found.app, todo.found.groups, steps.partitions, settings, topics)
        begun = check(todo, settings, topics)
        write_rescaling(log, begun)
    except BaseException:
        write_rescaling(log, None)  # where an error comes late, it may be there
        log.append(LAYOUT, ENDING, None)
        raise
    return begun


def _check_first(todo: Rescale, log: ControlTopic, at: Offset) -> None:
    """No other command has announced that it ends the app, since this one looked at it and before its own record at `at`.
    Raises ConfigError: the other one withdraws what both have announced."""
    others: list[Ending] = []
    for ending in endings(log, at):
        others = [] if ending in (None, todo.found.known.ending) else [*others, ending]
    if others:
        raise ConfigError(
            f"another command changes app {todo.found.app!r} at this moment: falkirk {others[0].what}",
            where=f"by {others[0].by}",
            hint="wait for its end, then give this one again",
        )


def _make_topics(
    todo: Rescale, begun: Rescaling, log: ControlTopic, settings: Settings, topics: Topics, tell: Tell
) -> LayoutRecord:
    """Delete the topics of the old tasks, make those of the new ones, and record the layout."""
    target, before = todo.target, begun.before
    old = {topic.id for topic in before.topics.values() if topic.role in MADE_AGAIN}
    for info in todo.found.topics.values():
        # Another command, which was killed or still runs on another host, may have made some of the new ones.
        if info.id in old:
            remove_topic(info, topics, lambda what: tell(f"deleted {what}"))
    for name, (partitions, config) in target.topics.items():
        topics.create(name, partitions, settings.replication, config)
    infos = topics.shown(target.roles)
    records = {name: _record(name, info, target, before) for name, info in sorted(infos.items())}
    number = before.number + 1
    layout = LayoutRecord(number, before.app, target.records(before, number), records, falkirk=version("falkirk"))
    wins = write_layout(log, layout)
    if wins != layout:
        raise StateError(f"another command has changed app {before.app!r} meanwhile", hint="give this one again")
    return layout


def _record(name: str, info: TopicInfo, target: Target, before: LayoutRecord) -> TopicRecord:
    was = before.topics.get(name)
    if name in target.topics or was is None:
        return TopicRecord(info.id, info.partitions, target.roles[name])
    return was


def _divide(todo: Rescale, begun: Rescaling, now: LayoutRecord, settings: Settings, tell: Tell) -> None:
    """Write the first steps and states of the new tasks."""
    folder = Path(settings.state_dir) / now.app
    folder.mkdir(parents=True, exist_ok=True)
    tasks = NewTasks(begun, todo.target, now, settings)
    tasks.begin()
    tasks.write_states(folder, tell)


def _tidy(todo: Rescale, begun: Rescaling, settings: Settings, tell: Tell) -> None:
    """Delete what only the old tasks had."""
    old = Leftovers(connect(settings.checkpoint_url()), begun.before.app, begun.before.incarnation)
    if objects := old.count()[0]:
        old.delete()
        tell(f"deleted {counted(objects, 'object')} of the old tasks under {old.where}")
    remove_workers(todo.found, lambda what: tell(f"deleted {what}"))
