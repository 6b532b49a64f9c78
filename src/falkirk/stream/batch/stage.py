"""A part of a flow under the batch regime, as the planner makes it: everything from its sources to its sinks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from falkirk.stream.dataflow.handling import Handling
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.topics import Accepts, Input, Output
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.regime_plan import BatchPlan
from falkirk.stream.formats import Format
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.operators.sources.source import Source

if TYPE_CHECKING:
    from falkirk.stream.batch.job import Job

BUCKET = 250_000
"""Records of the division for each bucket: the memory of one task is bounded by it."""
SHARED = 16
"""Buckets of a small division, if it is not smaller still: so many tasks can share what its keys have to do."""
LEAST = 10_000
"""A bucket of fewer records is not worth a task: one costs some ten milliseconds."""


def fingerprint_of(operators: Sequence[Operator], lines: Iterable[str]) -> str:
    """Of operators and how they are connected, and of more lines."""
    number = {operator: str(i) for i, operator in enumerate(operators)}
    told = [
        f"{','.join(number.get(i, '?') for i in o.inputs)} → {o.described(exactly=True)}: {words(o.schema)}"
        for o in operators
    ]
    return hashlib.blake2b("\n".join([*told, *lines]).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False, slots=True)
class BatchStage:
    """What an epoch computes."""

    app: str
    id: str
    regime: BatchPlan
    operators: tuple[Operator, ...]
    """All that its sinks depend on, without sources, in the order of definition; those upstream that stream as well are
    computed here once more."""
    sources: Mapping[Source, Format]
    """With the format that decodes the columns which are used here."""
    inputs: tuple[Input, ...]
    """The topics of the sources, in the order of their numbers."""
    outputs: tuple[Output, ...]
    """The sinks, in the order of their numbers, then the dead letters."""
    dead_letters: str
    handled: Mapping[Operator, Handling]
    """As a streaming stage has them."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """In the order of their numbers."""
        return tuple(o for o in self.operators if isinstance(o, Sink))

    @property
    def fingerprint(self) -> str:
        """Another one where operators, expressions, schemas, sources or sinks are others: the results of two epochs can
        then not be compared. What functions do is not looked at."""
        # The fingerprints of parts over the whole history, of flows without an on_error=, are older than these lines.
        lines = [] if self.regime.history == "whole" else [f"history={self.regime.history}"]
        operators = [*self.sources, *self.operators]
        for number, o in enumerate(operators):
            usual = Handling(letters=self.dead_letters) if o.role == "source" else Handling(stops=True)
            if o.on_error is None and (how := self.handled.get(o, usual)) != usual:
                lines.append(f"{number} fails: {'stop' if how.stops else f'{how.letters}, {how.share}'}")
        return fingerprint_of(operators, lines)

    def job(
        self,
        *,
        clock: int,
        records: int,
        result_partitions: int,
        dead_letters_from: Mapping[tuple[str, int], int],
        accepts: Mapping[str, Accepts] = MappingProxyType({}),
    ) -> Job:
        """The work of one epoch. `clock` (ms) is when it was opened, `records` how many offsets its division spans.
        `dead_letters_from`, by topic and partition: undecodable records below this offset already have dead letters.
        `accepts`: which records the topics of sinks accept."""
        from falkirk.stream.batch.job import Job

        by_id = {source.id: (source, value) for source, value in self.sources.items()}
        return Job(
            app=self.app, stage=self.id, operators=self.operators,
            sources=tuple(by_id[i.id] for i in self.inputs), topics=tuple(i.topic for i in self.inputs),
            dead_letters=self.dead_letters, letters=tuple(o.topic for o in self.outputs if o.kind == "dead_letters"),
            handled=self.handled, dead_letters_from=dict(dead_letters_from), clock=clock,
            buckets=max(-(-records // BUCKET), min(SHARED, -(-records // LEAST)), 1),
            result_partitions=result_partitions, accepts=dict(accepts),
        )  # fmt: skip
