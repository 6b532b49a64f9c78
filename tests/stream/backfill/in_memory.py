"""A backfill in memory: over the topics of a `MemoryApp`, cut anywhere, and sorted as an engine would.

>>> import falkirk as fk
>>> flow = fk.Flow("words")
>>> words = flow.source("words", key="word", value=fk.Json({"word": fk.String}))
>>> words.group_by("word").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
>>> app = MemoryApp(flow)
>>> app.append("words", b"a", b'{"word":"a"}')
>>> [r.value() for r in backfill(app).written["counts"]]
[b'{"word":"a","n":1}']
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import polars as pl

from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.store import Identity, Store
from falkirk.stream.backfill import BackfillJob, History
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.batch import Piece
from falkirk.stream.dataflow.records import Records
from falkirk.testing.batch import cut, sorted_rows, tasks_of
from falkirk.testing.memory import MemoryApp, Record


@dataclass(slots=True)
class Backfill:
    """Its result."""

    job: BackfillJob
    states: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    """By task, as `stage/partition`."""
    bases: dict[str, MemoryStore] = field(default_factory=dict)
    written: dict[str, list[Record]] = field(default_factory=dict)
    """By the output's id, in the order of publication; for grouped results, what each task wrote last."""

    @contextmanager
    def keeping(self, identity: Identity) -> Iterator[Store]:
        """See `falkirk.stream.backfill.Keeper`."""
        store = MemoryStore(identity, MemoryDisk())
        yield store
        assert identity.task not in self.bases
        self.bases[identity.task] = store
        self.states[identity.task] = dict(store.scan(b"", b"\xff\xff"))


def backfill(
    app: MemoryApp,
    rng: random.Random | None = None,
    *,
    clock: int = 0,
    result_partitions: int = 3,
    histories: Mapping[str, pl.DataFrame] | None = None,
) -> Backfill:
    """Backfill all that is in the topics now, and before that the tables that replace the beginnings of sources, by the names
    of these. `rng` cuts chunks, frames and tasks; without it nothing is cut."""
    histories = histories or {}
    stage = backfill_stage(app.plan, [History(source, "memory", source) for source in histories])
    pieces = {}
    first = 0
    for n, one in enumerate(stage.stages):
        sources = [i.topic for i in one.inputs if i.kind == "source"]
        for p in (p for of, p in app.tasks() if of is one):
            pieces[n, p] = [Piece(first + i, t, p, 0, len(app.topics[t][p])) for i, t in enumerate(sources)]
        first += len(sources)
    job = BackfillJob(stage, app.layout, pieces, clock, 0, result_partitions)
    made = Backfill(job)

    def reads(piece: Piece) -> Iterator[Records]:
        part, at = app.topics[piece.topic][piece.partition], piece.start
        while at < piece.end:
            end = rng.randint(at + 1, piece.end) if rng else piece.end
            yield Records.of(part[at:end], headers=stage.inputs[piece.source].headers)
            at = end

    frames = [p for source, rows in histories.items() for part in cut(rows, rng) for p in job.past(source, part)]
    frames += [job.marks(), *(frame for turn in job.turns for frame in job.head(turn, reads, made))]
    for n in range(1, job.levels + 1):
        frames = [f for task in tasks_of(frames, rng) for f in job.level(n, cut(task, rng), reads, made)]
    last = {n for n, sink in enumerate(stage.sinks) if sink.changes}
    made.written = {output.id: [] for output in stage.outputs}
    for row in sorted_rows(frames).iter_rows(named=True):
        assert row["level"] == job.levels + 1
        records = made.written[stage.outputs[row["exchange"]].id]
        records.append(Record(row["bucket"], len(records), row["key"], row["value"], row["timestamp"]))
        if row["exchange"] in last:
            records[:-1] = [r for r in records[:-1] if r.key() != row["key"]]
    for n in last:
        kept = made.written[stage.outputs[n].id]
        kept[:] = [r for r in kept if r.value() is not None]
    return made
