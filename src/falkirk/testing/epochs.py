"""Epochs of a flow's batch parts, over the topics of a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.publishing import HEADER
from falkirk.stream.access.producing import Sent
from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.stages.plan import Plan
from falkirk.testing.batch import epoch
from falkirk.testing.cluster import Cluster, Message


@dataclass(slots=True)
class _Part:
    """A batch part, and how far its epochs are."""

    stage: BatchStage
    epochs: int = 0
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: dict[str, set[bytes]] = field(default_factory=dict)
    """Of the rows that are visible in each topic, which an epoch over the whole history replaces."""
    fingerprint: str = ""
    """Of the definition that the last epoch had."""


class EpochRuns:
    """All batch parts. An epoch is computed by the operators that run on Spark, without Spark."""

    def __init__(self, plan: Plan, cluster: Cluster) -> None:
        self.plan, self._cluster = plan, cluster
        self._parts = [_Part(stage) for stage in plan.batches]

    def change(self, plan: Plan) -> None:
        """Continue with another flow's batch parts."""
        known = {part.stage.id: part for part in self._parts}
        self.plan = plan
        self._parts = [replace(known.get(stage.id, _Part(stage)), stage=stage) for stage in plan.batches]

    @property
    def topics(self) -> dict[str, list[list[Message]]]:
        """What is in the topics that batch parts read."""
        names = {i.topic for stage in self.plan.batches for i in stage.inputs}
        counts = self._cluster.counts
        return {name: [self._cluster.read(TopicPartition(name, p), 0) for p in range(counts[name])] for name in names}

    def run(self) -> Iterator[tuple[str, list[Sent]]]:
        """An epoch of each part that has something new to read, or another definition: its results, by topic."""
        for part in self._parts:
            topics = self.topics
            ends = {(i.topic, p): len(m) for i in part.stage.inputs for p, m in enumerate(topics[i.topic])}
            changed = part.epochs and part.fingerprint != part.stage.fingerprint
            if changed or any(part.ends.get(place, 0) < end for place, end in ends.items()):
                yield from self._epoch(part, ends, {} if changed else part.ends)
                part.ends, part.epochs, part.fingerprint = ends, part.epochs + 1, part.stage.fingerprint

    def _epoch(
        self, part: _Part, ends: dict[tuple[str, int], int], dead_letters_from: dict[tuple[str, int], int]
    ) -> Iterator[tuple[str, list[Sent]]]:
        stage, whole = part.stage, part.stage.regime.history == "whole"
        division = {place: (0 if whole else part.ends.get(place, 0), end) for place, end in ends.items()}
        clock = int(self._cluster.clock)
        written = epoch(self, stage=stage.id, division=division, dead_letters_from=dead_letters_from, clock=clock)
        headers = [(HEADER, b"%d" % part.epochs)]
        for output in stage.outputs:
            found = written[output.id]
            sent = [Sent(r.key(), r.value(), r.timestamp()[1], headers, None) for r in found]
            if output.kind == "sink":
                keys, before = {r.key for r in sent if r.key is not None}, part.keys.get(output.topic, set())
                gone = sorted(before - keys) if whole else []
                sent += [Sent(key, None, clock, headers, None) for key in gone]
                part.keys[output.topic] = keys if whole else before | keys
            yield output.topic, sent
