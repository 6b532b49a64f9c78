"""What a DataFrame reads: a division, fixed once, and how tasks share it.

readable(d)  ⇔  the topic of that name has the id d.topic_id,
                and for each partition with start < end:  earliest ≤ start  and  end ≤ high watermark

read(d) = the committed records of d: the same at each read, as long as d is readable
          (on a compacted topic, what is left of them)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.spark.options import Options
from falkirk.errors import ClusterError, SourceError

LEAST = 250_000
"""A slice of fewer offsets is not worth its own task: what is fetched beyond its end is fetched twice.

A partition of 1,000,000 bids in one slice took 2.3 µs of CPU a record, in slices of 250,000 2.5, of 100,000 3.1.
"""

WAVES = 2
"""Slices for each core, so that a slow slice does not leave the other cores idle for as long."""

LOST = Words(
    "records of the range were deleted",
    "read what is left with starting=earliest; and let the topic's retention outlast the time until it is read",
    SourceError,
)


class Slice(NamedTuple):
    """What one task reads: start ≤ offset < end of one partition."""

    partition: int
    start: Offset
    end: Offset


class Division(NamedTuple):
    """The offset ranges of a read, start ≤ offset < end, and the id of their topic."""

    topic_id: str
    ranges: Mapping[int, tuple[Offset, Offset]]


def divide(topics: Topics, options: Options) -> Division:
    """Fix what is read. Raises SourceError or ClusterError if that fails."""
    name = options.topic
    topic = topics.describe([name]).get(name)
    if topic is None:
        raise ClusterError(
            f"topic {name!r} does not exist", where=f"brokers {topics.brokers}", hint="is its name right?"
        )
    if options.ranges is None:
        partitions = [TopicPartition(name, p) for p in range(topic.partitions)]
        starts, ends = topics.offsets(partitions, options.starting), topics.offsets(partitions, options.ending)
        ranges = {p.partition: (min(starts[p], ends[p]), ends[p]) for p in partitions}
    else:
        ranges = dict(sorted(options.ranges.items()))
        if beyond := [p for p in ranges if p >= topic.partitions]:
            raise SourceError(
                f"there is no partition {beyond[0]}: the topic has {topic.partitions}",
                where=f"topic {name}",
                hint="fix the option 'ranges'",
            )
    division = Division(options.topic_id or topic.id, ranges)
    check_readable(topics, name, division)
    return division


def check_readable(topics: Topics, name: str, division: Division) -> None:
    """Raises SourceError unless the division is readable (see the module)."""
    check_same(topics, name, division.topic_id)
    places = {TopicPartition(name, p): bounds for p, bounds in division.ranges.items() if bounds[0] < bounds[1]}
    first, end = topics.offsets(places, "earliest"), topics.offsets(places, "latest")
    for place, (wanted, until) in places.items():
        if wanted < first[place]:
            raise SourceError(
                f"{LOST.what}: it begins at offset {wanted}, and the partition at {first[place]} now",
                where=f"topic {name}, partition {place.partition}",
                hint=LOST.hint,
            )
        if until > end[place]:
            raise SourceError(
                f"the range ends at offset {until}, and the partition at {end[place]}",
                where=f"topic {name}, partition {place.partition}",
                hint="were committed records lost? Or is this another cluster?",
            )


AGAIN = "load the DataFrame again to read what the topic holds now"


def check_same(topics: Topics, name: str, topic_id: str, hint: str = AGAIN) -> None:
    """Raises SourceError unless the division's offsets are this topic's."""
    topic = topics.describe([name]).get(name)
    if topic is None or topic.id != topic_id:
        raise SourceError(
            "the topic was " + ("deleted" if topic is None else "recreated: its offsets mean other records"),
            where=f"topic {name}, whose id was {topic_id}" + (f" and is {topic.id}" if topic else ""),
            hint=hint,
        )


def slices(division: Division, cores: int, most: int = 0) -> list[Slice]:
    """The division cut into slices of nearly equal size: no more than the cores need, unless `most` offsets bound them.

    Slices of one partition are apart in the list: tasks that begin together read best from different partitions.

    >>> slices(Division("id", {0: (0, 10), 1: (5, 5), 2: (0, 4)}), cores=2, most=5)
    [Slice(partition=0, start=0, end=5), Slice(partition=2, start=0, end=4), Slice(partition=0, start=5, end=10)]
    """
    total = sum(end - start for start, end in division.ranges.values())
    size = most or max(LEAST, -(-total // (cores * WAVES)))
    cut = []
    for partition, (start, end) in division.ranges.items():
        pieces = -(-(end - start) // size)
        edges = [Offset(start + (end - start) * i // pieces) for i in range(pieces)] + [end]
        cut += [(i, Slice(partition, *edges[i : i + 2])) for i in range(pieces)]
    return [piece for _, piece in sorted(cut)]
