"""What an app reads, as it is now, whether the app runs or not: what is left, and what keeps it from running.

topics       are those of the layout                                    `check_topics`
positions    all that a task has not read yet is still there            first offset ≤ position
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from falkirk.checkpoint.ids import Offset, TopicPartition, address, cluster_of
from falkirk.checkpoint.records import Range
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.places import names_by_cluster
from falkirk.connectors.kafka.reading.lag import Counts, Remaining, deleted_unread, lag
from falkirk.errors import FalkirkError, SourceError, UnreachableError
from falkirk.runtime.layout.compatibility import check_topics
from falkirk.runtime.layout.layout import LayoutRecord

PATIENCE = 5.0
"""Seconds until a cluster counts as silent."""


class InputStatus(msgspec.Struct, frozen=True):
    """A task's position in one partition."""

    topic: str
    partition: int
    position: int
    lag: int | None
    """The records left; an upper bound if they are more than a few. None: not known, because they are in another cluster than
    the app's, which does not answer, or because the topic is gone or another one."""


class TopicsNow(NamedTuple):
    """The topics of a layout as they are now."""

    silent: list[str]
    """The clusters, beside the app's own, that do not answer: nothing is known of their topics."""
    other: frozenset[str]
    """The topics that are gone, or that were deleted and created again."""
    error: FalkirkError | None
    """What is wrong with them."""
    firsts: Mapping[TopicPartition, Offset]
    """The first offset of each partition of the sources."""

    def known(self, place: TopicPartition) -> bool:
        """Whether offsets of this partition can be asked for, and mean what they meant."""
        return place.topic not in self.other and cluster_of(place.topic) not in self.silent

    def deleted(self, division: Iterable[Range]) -> Iterator[SourceError]:
        """An error for each partition in which records were deleted that a task with this last division has not read."""
        for place, at in ((r.partition.place, r.end) for r in division):
            if at < (first := self.firsts.get(place, at)):
                yield deleted_unread(at, first, f"{place.topic}[{place.partition}]")


def topics_now(layout: LayoutRecord, topics: Topics) -> TopicsNow:
    """Ask the clusters, before the positions of tasks are read. Raises UnreachableError if the app's own does not answer, and
    what is wrong if its steps topic is gone: without it nothing is known."""
    silent, here = list[str](), dict[str, TopicInfo]()
    for cluster, names in names_by_cluster(layout.topics).items():
        try:
            here |= topics.ask([address(cluster, name) for name in names], PATIENCE).result()
        except UnreachableError:
            if not cluster:
                raise
            silent.append(cluster)
    known = {name: topic for name, topic in layout.topics.items() if cluster_of(name) not in silent}
    other = frozenset(name for name, was in known.items() if name not in here or here[name].id != was.id)
    error = None
    try:
        check_topics(replace(layout, topics=known), here)
    except FalkirkError as found:
        if any(layout.topics[name].role == "steps" for name in other):
            raise
        error = found
    sources = [
        TopicPartition(name, p)
        for name, was in known.items()
        if was.role == "source" and name not in other
        for p in range(was.partitions)
    ]
    return TopicsNow(silent, other, error, topics.offsets(sources, "earliest"))


def inputs_left(
    divisions: Sequence[Sequence[Range]], now: TopicsNow, cluster: Cluster, topics: Topics
) -> list[list[InputStatus]]:
    """What is left of its inputs for each task, by its last division."""
    marks = topics.offsets({r.partition.place for d in divisions for r in d if now.known(r.partition.place)}, "latest")

    def left(read: Range) -> Remaining | None:
        place = read.partition.place
        mark = marks.get(place)
        return None if mark is None else Remaining(place, max(read.end, now.firsts.get(place, read.end)), mark)

    counts = Counts(cluster)
    try:
        counted = counts.of(one for division in divisions for r in division if (one := left(r)) is not None)
    finally:
        counts.close()

    def status(read: Range) -> InputStatus:
        one = left(read)
        return InputStatus(*read.partition.place, read.end, None if one is None else lag(one, counted))

    return [[status(read) for read in division] for division in divisions]
