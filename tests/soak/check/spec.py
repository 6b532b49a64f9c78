"""What a flow under test reads and writes, as the checker must know it beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from tests.soak.check.murmur import partition_of
from tests.soak.check.oracle import Oracle, Row, Whole
from tests.soak.check.seen import Seen


class Entry(NamedTuple):
    """A row in an output: a sink's record holds one, an edge's batch many, each with a timestamp of its own."""

    key: bytes
    value: Any
    timestamp: int


Unpack = Callable[[Seen], Iterable[Entry]]
Place = Callable[[bytes, int], int]


def json_entry(seen: Seen) -> Iterable[Entry]:
    """A record of a sink in JSON; None as its value is a tombstone.

    >>> from tests.soak.check.seen import Tp
    >>> json_entry(Seen(Tp("stats", 0), 5, b"7", b'{"n":1}', timestamp=9))
    [Entry(key=b'7', value={'n': 1}, timestamp=9)]
    """
    return [Entry(seen.key or b"", None if seen.value is None else orjson.loads(seen.value), seen.timestamp)]


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that a stage writes."""

    id: str
    """As step records name it."""
    topic: str
    unpack: Unpack = json_entry
    place: Place | None = partition_of
    """(key, number of partitions) → partition; None: any, but always the same for a key."""
    ordered: bool = True
    """Whether a step's records of one key are in an order that matters: those of a Z-set between stages are not."""
    whole: Callable[[], Whole] | None = None
    """The final table over all rows of the sources; None for what has none."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: what it reads, what it writes, and what it should compute."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    oracle: Callable[[], Oracle]


@dataclass(frozen=True, slots=True)
class Spec:
    """A flow under test."""

    app: str
    sources: tuple[str, ...]
    stages: tuple[Stage, ...]
    steps_topic: str
    parse: Callable[[bytes], Row] = orjson.loads
    partitions: Mapping[str, int] = field(default_factory=dict)
    """By topic; what is not named here has as many as the reader finds."""

    @property
    def outputs(self) -> dict[str, tuple[Stage, Output]]:
        """Who writes each topic that is written."""
        return {output.topic: (stage, output) for stage in self.stages for output in stage.outputs}

    @property
    def trimmed(self) -> set[str]:
        """Topics whose records the app deletes when it needs them no more: the steps, and the edges between stages."""
        return {self.steps_topic} | {topic for stage in self.stages for topic in stage.inputs if topic in self.outputs}

    @property
    def topics(self) -> list[str]:
        """All that must be read to check the flow."""
        return list(dict.fromkeys([*self.sources, *self.outputs, self.steps_topic]))
