"""The end of an app: finds and removes all that it has on the cluster, in the checkpoint store and on this host.

    ending written ──▶ its group is deleted: the broker refuses while there are workers ──▶ owners fenced
                   ──▶ topics ──▶ checkpoints ──▶ this host's stores ──▶ control topic

`ending` keeps anyone from running the app while half of it is gone. The control topic goes last, so that a killed deletion
finds in it what is left to do. Stores on other hosts belong to an incarnation that no app has any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.reading import fence_rivals
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.connectors.kafka.app_topics.epochs import publisher_log
from falkirk.errors import ConfigError
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import fresh_nonce, hold_app, person
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import check_app_name, known_app, no_such_app
from falkirk.runtime.layout.layout import ENDING, AppRecord, Ending, LayoutRecord, read_app_record
from falkirk.state.files import remove_folder as remove_files
from falkirk.state.objects import Leftovers, connect
from falkirk.stream.definition.names import control_topic, drivers, own_topics, replays_topic, steps_topic
from falkirk.wording import counted, listed

Tell = Callable[[str], None]

PUBLISHED = ("sink", "dead_letters")
"""What others read: stays, unless a person decides otherwise."""


@dataclass(frozen=True, slots=True)
class AppResources:
    """All that belongs to an app."""

    app: str
    known: AppRecord
    topics: Mapping[str, TopicInfo]
    """Its own topics, except the control topic."""
    published: Mapping[str, TopicInfo]
    """Its sinks and its dead letters, with the record of which were replayed."""
    groups: tuple[str, ...]
    versions: Leftovers | None
    """In the checkpoint store."""
    folder: Path | None
    """On this host."""
    read_back: tuple[str, ...] = ()
    """Sinks that the flow also reads: they count as sources, and stay."""
    control: TopicInfo | None = None
    """None: there is none."""


def app_resources(app: str, settings: Settings, topics: Topics) -> AppResources:
    """What exists of an app. Raises ConfigError if there is nothing."""
    check_app_name(app)
    topics.check_reachable(timeout=5.0)
    control = control_topic(settings.prefix, app)
    folder = _folder(Path(settings.state_dir) / app)
    there = topics.describe([control])
    if control not in there:
        if folder is None:
            raise no_such_app(app, settings, topics)
        return AppResources(app, AppRecord(), {}, {}, (), None, folder)
    known = known_app(app, settings, topics)
    roles = {} if known.last is None else {name: topic.role for name, topic in known.last.topics.items()}
    steps = steps_topic(settings.prefix, app)
    own = {name for name, role in roles.items() if role not in ("source", *PUBLISHED)} | {steps}
    # The record of replayed dead letters goes with them: letters without it could be replayed twice.
    others = {name for name, role in roles.items() if role in PUBLISHED} | {replays_topic(settings.prefix, app)}
    if known.last is None:
        own |= _created(app, settings, topics)
        others.add(f"{own_topics(settings.prefix, app)}dead-letters")
    found = topics.describe(own | others)
    incarnation = "" if known.last is None else known.last.incarnation
    versions = Leftovers(connect(settings.checkpoint_url()), app, incarnation) if incarnation else None
    return AppResources(
        app=app,
        known=known,
        topics={name: info for name, info in found.items() if name in own},
        published={name: info for name, info in found.items() if name not in own},
        groups=(app, drivers(app)),
        versions=versions,
        folder=folder,
        read_back=read_back(known.last),
        control=there[control],
    )


def _folder(folder: Path) -> Path | None:
    """A folder of a state directory, if it is an app's: others have the versions of all apps, or an embedded Kafka."""
    inside = ("lock", "worker-*", "gateway-*")
    return folder if any(next(folder.glob(name), None) is not None for name in inside) else None


def _created(app: str, settings: Settings, topics: Topics) -> set[str]:
    """The topics that were created for an app that has never run, known by their names. Those of another app whose name
    begins with this one's are not among them."""
    names, mine = topics.names(), own_topics(settings.prefix, app)
    others = tuple(n.removesuffix("control") for n in names if n.startswith(mine) and n.endswith(".control"))
    kinds = tuple(f"{mine}{kind}." for kind in ("changelog", "edge", "epochs"))
    return {n for n in names if n.startswith(kinds) and not n.startswith(tuple(o for o in others if o != mine))}


def read_back(layout: LayoutRecord | None) -> tuple[str, ...]:
    """The topics that stages write and the flow reads."""
    if layout is None:
        return ()
    written = {topic for stage in layout.stages for topic in stage.outputs}
    return tuple(sorted(name for name in written if name in layout.topics and layout.topics[name].role == "source"))


def check_stopped(app: str, topics: Topics) -> None:
    """Raises ConfigError while the app has workers or a driver."""
    members = topics.group(app).members
    driving = topics.group(drivers(app)).members
    if members or driving:
        who = [f"{name} on {m.host}" for name, m in sorted({**members, **driving}.items())]
        raise ConfigError(
            f"app {app!r} is running",
            where=listed(who),
            hint="stop it first: SIGTERM to each falkirk run, or falkirk drain. A worker that was killed counts until its "
            "session has ended (10 s, if --session-timeout was not given)",
        )


@contextmanager
def ending(what: Literal["delete", "reset"], found: AppResources, settings: Settings, topics: Topics) -> Iterator[None]:
    """From here on nobody runs the app, and nothing that sleeping workers had sent is still committed. Raises ConfigError if
    it runs after all."""
    with alone(found):
        control = control_topic(settings.prefix, found.app)
        steps = steps_topic(settings.prefix, found.app)
        partitions = found.topics[steps].partitions if steps in found.topics else 0
        with closing(ControlTopic(settings.cluster(), control)) as log:
            begun = read_app_record(log).ending
            announce(log, what)
            try:
                check_unchanged(found, read_app_record(log))
                shut_out(found.app, found.groups, partitions, settings, topics)
            except BaseException:
                # Nothing is deleted yet: the app is as it was, or as a command that was killed has left it.
                log.append(LAYOUT, ENDING, None if begun is None else msgspec.json.encode(begun))
                raise
        yield


def check_unchanged(found: AppResources, now: AppRecord) -> None:
    """Nothing was recorded since the app was looked at: a person may take long to answer. Raises ConfigError."""
    if (now.last, now.begins) != (found.known.last, found.known.begins):
        raise ConfigError(
            f"app {found.app!r} has changed since this command looked at it: it was run or reset meanwhile",
            hint="nothing is deleted; give the command again",
        )


def announce(log: ControlTopic, what: Literal["delete", "reset", "rescale"]) -> Offset:
    """From here on nobody starts the app."""
    return log.append(LAYOUT, ENDING, msgspec.json.encode(Ending(what, person(), WallClock().now())))


def shut_out(app: str, groups: Collection[str], partitions: int, settings: Settings, topics: Topics) -> None:
    """Nobody is in the app's groups, and nothing that sleeping workers had sent is still committed. `partitions`: the number
    in its steps topic. Raises ConfigError if somebody is in them."""
    check_stopped(app, topics)
    topics.delete_groups(groups)
    if partitions:
        steps = steps_topic(settings.prefix, app)
        fence_all([TopicPartition(steps, p) for p in range(partitions)], app, settings)


def alone(found: AppResources) -> AbstractContextManager[None]:
    """Nobody runs the app in this state directory meanwhile. Raises IdentityError if somebody does."""
    return nullcontext() if found.folder is None else hold_app(found.folder, found.app)


def fence_all(steps: list[TopicPartition], app: str, settings: Settings) -> None:
    """Abort every worker's open transaction."""
    owner = OwnerId(f"{app}.ending.{fresh_nonce()}")
    with closing(publisher_log(settings.cluster(), owner, settings.transaction_timeout_ms, 1_000_000)) as log:
        driver.run(fence_rivals(log, steps))


def delete(
    found: AppResources,
    settings: Settings,
    topics: Topics,
    tell: Tell,
    *,
    published: bool,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Remove an app, and with `published` what it has published. What is already removed is skipped. `check` is called when
    nobody can run it any more, and raises if nothing of it may be removed."""
    if found.control is not None:
        with ending("delete", found, settings, topics):
            check()
            remove(found, topics, tell, [*found.topics, *(found.published if published else ())])
            remove_folder(found, tell)
            remove_topic(found.control, topics, tell)
    else:
        with alone(found):
            remove_folder(found, tell)


def remove(found: AppResources, topics: Topics, tell: Tell, names: list[str]) -> None:
    """Topics, then versions."""
    known = {**found.topics, **found.published}
    for name in names:
        remove_topic(known[name], topics, tell)
    if found.versions is not None and (objects := found.versions.count()[0]):
        found.versions.delete()
        tell(f"{counted(objects, 'object')} under {found.versions.where}")


def remove_topic(known: TopicInfo, topics: Topics, tell: Tell) -> None:
    """Delete a topic; but not another one of its name, which a run has made since another person's command deleted it."""
    now = topics.describe([known.name]).get(known.name)
    if now is None or now.id == known.id:  # a broker that has just started may not show it
        topics.delete([known.name])
        tell(f"topic {known.name}")


def remove_workers(found: AppResources, tell: Tell) -> None:
    """The stores of this host's workers, and not what a gateway has beside them: that may be at work. Raises DiskError."""
    for folder in sorted(found.folder.glob("worker-*")) if found.folder is not None else ():
        remove_files(folder)
        tell(f"folder {folder}")


def remove_folder(found: AppResources, tell: Tell) -> None:
    """This host's stores. Raises DiskError."""
    if found.folder is not None:
        remove_files(found.folder)
        tell(f"folder {found.folder}")
