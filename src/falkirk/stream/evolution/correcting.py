"""Corrects the difference between the output that steps published and the output that they should have published.

    output                       correction
    edge with retractions        Σ should − Σ published, row by row, deletions before insertions: exact
    sink of a table              for each key whose last record is wrong, the right record, or a tombstone if no row is left
    anything else                the missing records; wrong records stay, and are counted

A key that was published but should not have been gets the row that the state has for it now. Its earlier records may be gone
from the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from falkirk.errors import DivergenceError
from falkirk.stream.circuit.edges import packed_for
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import Corrected, Emitted, OutputRecord, OutputRecords
from falkirk.stream.dataflow.packing import is_mark, unpacked
from falkirk.stream.operators.sinks.sink import Sink, written
from falkirk.stream.stages.stage import Edge, PhysicalStage

_TO = "__falkirk_to"
"""The task that a row is sent to."""

Visible = Callable[[Sink, Sequence[bytes | None]], Batch | None]
"""The rows that a sink has now under some keys; None where the state does not tell."""


def corrected_outputs(
    stage: PhysicalStage, should: OutputRecords, published: OutputRecords, visible: Visible
) -> Corrected:
    """For each output of a stage, the records to emit. Raises DivergenceError if they are unknown."""
    sinks = {o.id: o for o in stage.operators if isinstance(o, Sink)}
    edges = {e.id: e for e in stage.edges_out}
    emitted: list[Emitted] = []
    left: dict[str, int] = {}
    for output in stage.outputs:
        due, have = should.get(output.id, []), published.get(output.id, [])
        edge, sink = edges.get(output.id), sinks.get(output.id)
        if edge is not None:
            records, wrong = _of_edge(edge, due, have)
        elif sink is not None and sink.inputs[0].changes and not sink.is_log:
            records, wrong = _of_table(sink, due, have, visible), 0
        else:
            records, wrong = _of_stream(due, have)
        if records:
            emitted.append(_emitted(output.id, output.topic, records))
        if wrong:
            left[output.id] = wrong
    return Corrected(emitted, left)


def _emitted(output: str, topic: str, records: Sequence[OutputRecord]) -> Emitted:
    own = [r.headers or [] for r in records]
    return Emitted(
        output,
        topic,
        [r.partition for r in records],
        [r.key for r in records],
        [r.value for r in records],
        [r.timestamp for r in records],
        own if any(own) else None,
    )


def _of_stream(should: Sequence[OutputRecord], published: Sequence[OutputRecord]) -> tuple[list[OutputRecord], int]:
    have = Counter((r.key, r.value) for r in published)
    missing = []
    for record in should:
        if have[record.key, record.value]:
            have[record.key, record.value] -= 1
        else:
            missing.append(record)
    return missing, have.total()


def _of_table(
    sink: Sink, should: Sequence[OutputRecord], published: Sequence[OutputRecord], visible: Visible
) -> list[OutputRecord]:
    due, have = ({(r.partition, r.key): r for r in records} for records in (should, published))
    wrong = [r for at, r in due.items() if at not in have or (r.value != have[at].value and not have[at].hidden)]
    only = [r for at, r in have.items() if at not in due and not r.hidden]
    if not only:
        return wrong
    rows = visible(sink, [r.key for r in only])
    if rows is None:
        raise DivergenceError(
            f"sink {sink.id!r} was told of {len(only)} keys that the present code says nothing of, and what they had before "
            "cannot be told from the state",
            where=f"{sink.where}, for instance key {only[0].key!r}",
            hint="run the previous code, stop it cleanly, and then change it",
        )
    found = written(sink, rows)
    now = dict(zip(found.keys, found.values, strict=True))
    return wrong + [r._replace(value=now.get(r.key), headers=None) for r in only if now.get(r.key) != r.value]


def _of_edge(
    edge: Edge, should: Sequence[OutputRecord], published: Sequence[OutputRecord]
) -> tuple[list[OutputRecord], int]:
    signed = [(r, sign) for records, sign in ((published, -1), (should, 1)) for r in records if not is_mark(r.value)]
    if not signed:
        return [], 0
    frames = [_rows(edge, record, sign) for record, sign in signed]
    layout = frames[0].schema
    if any(frame.schema != layout for frame in frames):
        raise DivergenceError(
            f"the rows between stages have other columns than they had: {edge.id}",
            where=f"topic {edge.topic}",
            hint="run the previous code, stop it cleanly, and then change it",
        )
    net = (
        pl.concat(frames, rechunk=True)
        .group_by([*edge.columns, _TO], maintain_order=True)
        .agg(pl.col(WEIGHT).sum(), pl.col(TS).max())
        .filter(pl.col(WEIGHT) != 0)
        .sort(pl.col(WEIGHT) > 0, maintain_order=True)
    )
    wrong = 0
    if not edge.changes:
        wrong = -int(net.filter(pl.col(WEIGHT) < 0)[WEIGHT].sum())
        net = net.filter(pl.col(WEIGHT) > 0)
    if not net.height:
        return [], wrong
    each = net[np.repeat(np.arange(net.height), net[WEIGHT].abs().to_numpy())]
    meta = unpacked(signed[0][0].value, edge.topic).drop(edge.columns).schema
    signs = each.with_columns(pl.col(WEIGHT).sign()).select(
        *edge.columns, *(pl.col(c).cast(t) for c, t in meta.items())
    )
    return [
        OutputRecord(task, None, data, latest) for task, data, latest in packed_for(signs, each[_TO].to_numpy())
    ], wrong


def _rows(edge: Edge, record: OutputRecord, sign: int) -> pl.DataFrame:
    """The rows of a record, with what they weigh in the difference."""
    frame = unpacked(record.value, f"topic {edge.topic}, partition {record.partition}")
    weight = pl.col(WEIGHT).cast(pl.Int64) if WEIGHT in frame.columns else pl.lit(1, pl.Int64).alias(WEIGHT)
    known = [c for c in edge.columns if c in frame.columns]
    return frame.select(*known, TS, weight * sign, pl.lit(record.partition, pl.Int64).alias(_TO))
