"""From records to rows: one contiguous frame in (partition, offset) order, or the dead letters."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

import msgspec
import numpy as np
import polars as pl

from falkirk.errors import SourceError
from falkirk.stream.circuit import Emitted, Message, Slice
from falkirk.stream.engine.batch import ORIGIN, TS, Batch
from falkirk.stream.engine.step import StepRun
from falkirk.stream.formats import Format
from falkirk.stream.metadata import metadata_column
from falkirk.stream.operators import Source
from falkirk.stream.stage import DEAD_LETTERS


class SourceReader:
    """Decodes one source for one task."""

    def __init__(
        self, source: Source, value: Format, *, app: str, stage: str, dead_letters: str, partitions: Mapping[str, int]
    ) -> None:
        self.source, self.value, self.app, self.stage = source, value, app, stage
        self.dead_letters, self.dead_partitions = dead_letters, partitions.get(dead_letters, 1)

    def read(self, run: StepRun) -> Batch | None:
        """The rows of the source's slices. Records that do not decode go to the dead letters."""
        slices = run.slices(self.source.id)
        if not slices:
            return None
        messages = (
            slices[0][1].messages if len(slices) == 1 else list(chain.from_iterable(s.messages for _, s in slices))
        )
        decoded = self.value.decode([m.value() for m in messages])
        good = self._bury(run, slices, messages, decoded.bad) if decoded.bad else None
        kept = messages if good is None else [messages[i] for i in good]
        if not kept:
            return None
        meta = [pl.Series(TS, [m.timestamp()[1] for m in kept], dtype=pl.Int64)]
        numbers = np.concatenate([np.arange(start, start + len(s.messages)) for start, s in slices])
        meta.append(pl.Series(ORIGIN, numbers if good is None else numbers[good], dtype=pl.UInt32))
        rows = decoded.frame
        if self.source.metadata:
            rows = rows.hstack([metadata_column(what, kept).alias(column) for column, what in self.source.metadata.items()])
        if self.source.checked:
            self._check_keys(slices, rows, good, len(messages))
        return Batch(rows, pl.DataFrame(meta))

    def _check_keys(
        self, slices: list[tuple[int, Slice]], rows: pl.DataFrame, good: list[int] | None, total: int
    ) -> None:
        """The first record of each slice must have the key that its column spells."""
        key = self.source.key
        assert key is not None
        firsts = np.cumsum([0, *[len(s.messages) for _, s in slices[:-1]]])
        places = firsts if good is None else np.searchsorted(good, firsts)
        for (_, piece), first, row in zip(slices, firsts.tolist(), places.tolist(), strict=True):
            index = row if good is None else (good[row] if row < len(good) else total)
            if not first <= index < first + len(piece.messages):
                continue
            message = piece.messages[index - first]
            (spelt,) = key.encode(rows[row : row + 1])
            if message.key() != spelt:
                raise SourceError(
                    f"the record's key is {message.key()!r}, and column {', '.join(key.columns)} spells {spelt!r}",
                    where=f"source {self.source.id!r} ({self.source.line}), topic {piece.topic}, "
                    f"partition {piece.partition}, offset {message.offset()}",
                    hint='name the key\'s format, like fk.Key("id", fk.Int64BE); or, if the topic is keyed otherwise, '
                    "give repartition=True",
                )

    def _bury(
        self, run: StepRun, slices: list[tuple[int, Slice]], messages: Sequence[Message], bad: list[tuple[int, str]]
    ) -> list[int]:
        """Send what did not decode to the dead letters; the indexes of the rest."""
        topics = list(chain.from_iterable(repeat(s.topic, len(s.messages)) for _, s in slices))
        letters = [messages[i] for i, _ in bad]
        run.bury(
            Emitted(
                output=DEAD_LETTERS,
                topic=self.dead_letters,
                partitions=[m.partition() % self.dead_partitions for m in letters],
                keys=[m.key() for m in letters],
                values=[self._letter(topics[i], messages[i], reason) for i, reason in bad],
                timestamps=[m.timestamp()[1] for m in letters],
            )
        )
        lost = {i for i, _ in bad}
        return [i for i in range(len(messages)) if i not in lost]

    def _letter(self, topic: str, message: Message, reason: str) -> bytes:
        return msgspec.json.encode(
            {
                "app": self.app,
                "stage": self.stage,
                "source": self.source.id,
                "topic": topic,
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "reason": reason,
                "key": _base64(message.key()),
                "payload": _base64(message.value()),
            }
        )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
