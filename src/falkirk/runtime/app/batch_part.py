"""A batch part on a cluster: its topics, and the work of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

from falkirk.checkpoint.epochs import Epochs, Opened, OutputEnds
from falkirk.checkpoint.ids import InputPartition, Offset, TopicPartition
from falkirk.checkpoint.publishing import Part, progress_place
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.stream.backfill import BackfillJob, BackfillStage, HistoryTask
from falkirk.stream.batch import BatchStage, Job, Piece
from falkirk.stream.dataflow.topics import Accepts

PIECE = 250_000
"""Offsets of one piece. Always the same: the cuts of a division affect its floating-point sums."""


@dataclass(frozen=True, slots=True)
class BoundBatch:
    """A batch part, its topics and its result partitions."""

    stage: BatchStage | BackfillStage
    epochs: str
    """The topic that holds its epochs."""
    result_partitions: int
    places: Mapping[InputPartition, TopicPartition]
    """All that it reads."""
    outputs: tuple[TopicInfo, ...]
    """By the numbers of the stage's outputs."""
    accepts: Mapping[str, Accepts]
    """What topics accept."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose states an epoch makes: those of a backfill."""
        return ()

    @property
    def openings(self) -> TopicPartition:
        """Where epochs are opened and ended."""
        return TopicPartition(self.epochs, 0)

    @property
    def progress(self) -> tuple[TopicPartition, ...]:
        """Where result partitions record their progress."""
        return tuple(progress_place(self.epochs, p) for p in range(self.result_partitions))

    def parts(self, epochs: Epochs) -> list[Part]:
        """The result partitions of the open epoch."""
        assert epochs.opened is not None
        return [Part(place, epochs.opened.epoch, epochs.opening) for place in self.progress]

    def starts(self, topics: Topics, epochs: Epochs) -> dict[InputPartition, Offset]:
        """Where the sources begin: where `start=` pointed at the first epoch that read them, but not before what is
        retained."""
        kept = topics.offsets(self.places.values(), "earliest")
        begun: dict[InputPartition, Offset] = {}
        for opened in filter(None, (epochs.first, *(c.opened for c in epochs.kept), epochs.opened)):
            for r in opened.division:  # an epoch of what is new begins later
                begun[r.partition] = min(r.start, begun.get(r.partition, r.start))
        # A topic that was made again, or has more partitions, is read from its beginning.
        sources, known = {source.topic for source in self.stage.inputs}, {p.place.topic for p in begun}
        chosen = self._chosen(topics, sources - known)
        if self.stage.regime.history == "whole" and epochs.kept and epochs.kept[-1].adds and epochs.first_is_gone:
            # All that is on record may have read only what was new: where the first one began is not known any more.
            chosen = self._chosen(topics, sources)
        begun |= {p: min(at, begun.get(p, at)) for p, at in chosen.items()}
        return {p: max(begun.get(p, Offset(0)), kept[place]) for p, place in self.places.items()}

    def _chosen(self, topics: Topics, new: Set[str]) -> dict[InputPartition, Offset]:
        """Where `start=` points now, in topics that no epoch has read."""
        chosen: dict[InputPartition, Offset] = {}
        for source in self.stage.inputs:
            mine = {p: place for p, place in self.places.items() if place.topic == source.topic and place.topic in new}
            if isinstance(source.start, Mapping):
                chosen |= {p: Offset(source.start.get(place.partition, 0)) for p, place in mine.items()}
            elif mine:
                found = topics.offsets(mine.values(), source.start)
                chosen |= {p: found[place] for p, place in mine.items()}
        return chosen

    def ends(self, topics: Topics) -> dict[InputPartition, Offset]:
        """Where the sources end now."""
        found = topics.offsets(self.places.values(), "latest")
        return {p: found[place] for p, place in self.places.items()}

    def output_ends(self, topics: Topics) -> tuple[OutputEnds, ...]:
        """Where the outputs end now."""
        ends = []
        for output in self.outputs:
            places = [TopicPartition(output.name, p) for p in range(output.partitions)]
            found = topics.offsets(places, "latest")
            ends.append(OutputEnds(output.name, output.id, tuple(found[p] for p in places)))
        return tuple(ends)

    def job(self, epochs: Epochs) -> Job | BackfillJob:
        """The work of the open epoch."""
        assert epochs.opened is not None
        assert isinstance(self.stage, BatchStage)
        return self.stage.job(
            clock=epochs.opened.clock,
            records=sum(r.end - r.start for r in epochs.opened.division),
            result_partitions=self.result_partitions,
            dead_letters_from=self.dead_letters_from(epochs),
            accepts=self.accepts,
        )

    def lasts(self) -> list[bool]:
        """For each output, whether only the last record of a key counts."""
        return [False] * len(self.outputs)

    def pieces(self, opened: Opened) -> Sequence[Piece | HistoryTask]:
        """The division, cut. Pieces of one partition lie apart: tasks that begin together read best from several."""
        cut = []
        for read in opened.division:
            topic, partition = read.partition.place
            # Several sources may read one topic, and each of them reads all of it.
            numbers = [i for i, source in enumerate(self.stage.inputs) if source.topic == topic]
            for start in range(read.start, read.end, PIECE):
                end = min(start + PIECE, read.end)
                cut += [(start - read.start, Piece(number, topic, partition, start, end)) for number in numbers]
        return [piece for _, piece in sorted(cut)]

    def dead_letters_from(self, epochs: Epochs) -> dict[tuple[str, int], int]:
        """Up to where undecodable records are already in the dead letters: the ends of the newest complete epoch. If that was
        one of another definition, it may have decoded what this one cannot: then none of them counts as being there."""
        newest = epochs.complete
        if newest is None or newest.fingerprint != self.stage.fingerprint:
            return {}
        return {p.place: int(end) for p, end in epochs.read.items()}

    def replaced(self, epochs: Epochs) -> Iterator[tuple[int, TopicPartition, Offset, Offset]]:
        """Where the rows lie that the open epoch replaces: the sink's number, and a range of one of its partitions."""
        if self.stage.regime.history != "whole" or epochs.opened is None:
            return
        for number, (sink, now) in enumerate(zip(self.stage.sinks, epochs.opened.outputs, strict=False)):
            was = epochs.shown.get(now.topic)
            if sink.key is None:
                continue
            for p, end in enumerate(now.ends):
                # A topic that was made again holds no earlier rows; nor does a partition that did not exist then.
                same = was is not None and was.topic_id == now.topic_id and p < len(was.ends)
                start = was.ends[p] if was is not None and same else end
                if start < end:
                    yield number, TopicPartition(now.topic, p), start, end


def bind(
    stages: Sequence[BatchStage],
    epochs: Mapping[str, str],
    infos: Mapping[str, TopicInfo],
    accepts: Mapping[str, Accepts] = MappingProxyType({}),
) -> tuple[BoundBatch, ...]:
    """The batch parts on a cluster that has all their topics; `epochs` names the topic of each part's epochs."""
    return tuple(
        BoundBatch(
            stage,
            epochs[stage.id],
            infos[epochs[stage.id]].partitions - 1,
            {
                InputPartition.at(place, infos[i.topic].id): place
                for i in stage.inputs
                for p in range(infos[i.topic].partitions)
                for place in [TopicPartition(i.topic, p)]
            },
            tuple(infos[o.topic] for o in stage.outputs),
            accepts,
        )
        for stage in stages
    )
