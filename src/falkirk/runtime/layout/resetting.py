"""A reset: an app begins again, with empty state, at chosen offsets of its sources.

    ending written ──▶ stopped, fenced ──▶ own topics, versions, stores deleted ──▶ begins written ──▶ ending withdrawn
                  nobody runs the app                                              from here on it is reset

Positions are in step records, and state is in a store, a changelog and versions that all depend on their steps: none of them
can be moved alone. So all of it is deleted, as with the app, except its control topic. The next run makes another steps
topic, and never mistakes an old store or version for its own. Batch parts and their epochs stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime

import msgspec

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.durations import millis_since_1970
from falkirk.errors import ConfigError, SourceError
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import person
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.deleting import AppResources, Tell, ending, remove, remove_folder
from falkirk.runtime.layout.layout import BEGINS, ENDING, RESCALE, Begins, LayoutRecord, Start, read_app_record
from falkirk.stream.definition.names import BACKFILL, control_topic, epochs_topic

To = str | int | Mapping[str, Mapping[int, int]]
"""earliest, latest, milliseconds since 1970, or offsets by topic and partition."""


def parse_to(text: str) -> To:
    """The value of `--to`. Raises ConfigError.

    >>> parse_to("earliest"), parse_to("2026-11-21T10:00:00Z"), parse_to("bids:0=17,2=5")
    ('earliest', 1795255200000, {'bids': {0: 17, 2: 5}})
    """
    if text in ("earliest", "latest"):
        return text
    if text.isdigit():
        return int(text)
    topic, colon, pairs = text.rpartition(":")
    if colon and re.fullmatch(r"\d+=\d+(,\d+=\d+)*", pairs):
        chosen = [(int(p), int(o)) for p, o in (pair.split("=") for pair in pairs.split(","))]
        if len(dict(chosen)) < len(chosen):
            raise ConfigError(f"--to {text!r} names a partition twice", hint="give one offset for each")
        return {topic: dict(chosen)}
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        what = "is not a valid position in a topic" if at is None else "does not say in which time zone"
        raise ConfigError(
            f"--to {text!r} {what}",
            hint="give earliest, latest, a time (2026-11-21T10:00:00Z, or milliseconds since 1970), or offsets "
            "(TOPIC:PARTITION=OFFSET,…)",
        )
    return millis_since_1970(at)


def starts_at(layout: LayoutRecord, to: Sequence[To], topics: Topics) -> dict[str, Start]:
    """Where the streams' sources begin, as offsets. Raises ConfigError and SourceError for places that do not exist."""
    read = {name for s in layout.stages for name in s.inputs if layout.topics[name].role == "source"}
    found = topics.describe(read)
    # An app can begin again without one of several topics.
    sources = sorted(read - ({name for s in layout.stages for name in s.several} - found.keys()))
    if missing := [name for name in sources if name not in found]:
        raise SourceError(f"topic {missing[0]!r} is gone: app {layout.app!r} reads it", hint="restore it first")
    whole = [at for at in to if not isinstance(at, Mapping)]
    if len(whole) > 1:
        raise ConfigError(
            "--to is given twice for all sources", hint="give it once, and offsets for single topics beside it"
        )
    places = [TopicPartition(name, p) for name in sources for p in range(found[name].partitions)]
    chosen = topics.offsets(places, whole[0] if whole else "earliest")
    first, end = topics.offsets(places, "earliest"), topics.offsets(places, "latest")
    given = set[TopicPartition]()
    for topic, offsets in ((t, o) for at in to if isinstance(at, Mapping) for t, o in at.items()):
        for partition, offset in offsets.items():
            place = TopicPartition(topic, partition)
            if place in given:
                raise ConfigError(f"--to is given twice for {topic}[{partition}]", hint="give one offset for each")
            given.add(place)
            if place not in chosen:
                raise ConfigError(
                    f"app {layout.app!r} reads no partition {partition} of a topic {topic!r}",
                    where="--to",
                    hint=f"its sources: {', '.join(f'{n} (0 to {found[n].partitions - 1})' for n in sources)}",
                )
            if not first[place] <= offset <= end[place]:
                raise SourceError(
                    f"{topic}[{partition}] has offsets from {first[place]} to {end[place]}, and {offset} is none of them",
                    where="--to",
                    hint=f"name one of them; {end[place]} is to begin with what comes next",
                )
            chosen[place] = Offset(offset)
    return {
        name: Start(found[name].id, tuple(chosen[TopicPartition(name, p)] for p in range(found[name].partitions)))
        for name in sources
    }


def own_topics(found: AppResources, settings: Settings) -> list[str]:
    """The topics that a reset deletes: not those that record batch parts' epochs."""
    roles = {} if found.known.last is None else found.known.last.topics
    backfill = epochs_topic(settings.prefix, found.app, BACKFILL)
    return [name for name in found.topics if name not in roles or roles[name].role != "epochs" or name == backfill]


def reset(found: AppResources, settings: Settings, topics: Topics, starts: Mapping[str, Start], tell: Tell) -> None:
    """Let a stopped app begin again there. Raises ConfigError if it runs. If killed, run it again."""
    assert found.known.last is not None
    control = control_topic(settings.prefix, found.app)
    begins = Begins(found.known.last.number, dict(starts), person(), WallClock().now())
    with ending("reset", found, settings, topics):
        remove(found, topics, tell, own_topics(found, settings))
        remove_folder(found, tell)
        with closing(ControlTopic(settings.cluster(), control)) as log:
            if (now := read_app_record(log).begins) != found.known.begins:
                raise ConfigError(
                    f"app {found.app!r} was reset meanwhile{'' if now is None else f', by {now.by}'}",
                    hint="what that reset has chosen counts; falkirk run starts the app from there",
                )
            log.append(LAYOUT, BEGINS, msgspec.json.encode(begins))
            log.append(LAYOUT, RESCALE, None)  # a rescaling that was begun before is of what is deleted now
            log.append(LAYOUT, ENDING, None)
