"""What a stream was told by the table that a batch part writes: in each step by one epoch, and by no older one later.

told(step) = lookup(records of step, table(e))        for one complete epoch e, or none yet; never less than the step before
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

HEADER = "falkirk"


class ToldRow(NamedTuple):
    """A record of the sink."""

    task: str
    step: int
    key: bytes
    row: dict[str, Any]


def told(messages: Sequence[Any]) -> list[ToldRow]:
    """Records as they were read."""
    found = []
    for m in messages:
        task, step, _ = dict(m.headers())[HEADER].decode().rsplit(" ", 2)
        found.append(ToldRow(task, int(step), m.key(), json.loads(m.value())))
    return sorted(found, key=lambda t: (t.task, t.step))


def judge(rows: Sequence[ToldRow], sent: int, tables: Mapping[int, Mapping[bytes, Any]]) -> list[str]:
    """Everything that is wrong, if so many bids were sent, and the epochs' tables are these."""
    wrong = []
    ids = Counter(row.row["id"] for row in rows)
    if (lost := sent - len(ids)) or (twice := sum(ids.values()) - len(ids)):
        wrong.append(f"told: {lost} of {sent} bids are lost, {0 if lost else twice} doubled")
    for task, of_task in groupby(rows, key=lambda t: t.task):
        newest = -1
        for step, group in groupby(of_task, key=lambda t: t.step):
            of_step = list(group)
            by = next((e for e in sorted(tables) if e >= newest and all(_says(tables[e], t) for t in of_step)), None)
            if by is None:
                wrong.append(f"told: step {step} of {task} is of no one epoch from {newest} on: {of_step[0].row}…")
                continue
            newest = by
    return wrong


def _says(table: Mapping[bytes, Any], told: ToldRow) -> bool:
    row = table.get(told.key, {})
    return bool((row.get("n"), row.get("sum")) == (told.row["known"], told.row["so_far"]))
