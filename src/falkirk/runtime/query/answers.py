"""One task's part of an answer, read from a snapshot of its store: see `falkirk.runtime.query` for the rule."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import polars as pl

from falkirk.runtime.query.questions import Question, token_of
from falkirk.state.rocks import StoreSnapshot
from falkirk.state.shards import SHARDS
from falkirk.stream.access.endpoints import plain
from falkirk.stream.access.stored_state import Pair
from falkirk.stream.dataflow.catching import rows_shown


class Part(msgspec.Struct, frozen=True):
    """What one task has to say."""

    task: str
    step: int
    time: int
    """The clock of that step: milliseconds since 1970."""
    rows: list[msgspec.Raw] = []
    next: str = ""
    """Where to continue; "": there is no more."""
    elsewhere: bool = False
    """The key would be in another task."""


decode_part = msgspec.json.Decoder(Part).decode


def read(
    question: Question, task: int, snapshot: StoreSnapshot, shards: Sequence[int] | None
) -> tuple[list[Pair], str]:
    """The pairs that the question asks for, and where to continue. `shards`: where they are; None: it is not known. Raises
    StateError."""
    places = range(SHARDS) if shards is None else shards
    if question.one_row:
        return _of_key(question, snapshot, places), ""
    return _scanned(question, task, snapshot, places)


def rows_of(question: Question, pairs: Sequence[Pair]) -> list[msgspec.Raw]:
    """Rows as JSON: an object of the key's columns, and one of the others. Raises StateError and UserCodeError."""
    if not pairs:
        return []
    table = question.table
    frame: pl.DataFrame = question.kept_by.readable(question.name, table.frame(pairs))
    others = [name for name in frame.columns if name not in table.keys]
    found = []
    for row in rows_shown(frame):
        key = {name: plain(row[name]) for name in table.keys}
        found.append(msgspec.Raw(msgspec.json.encode({"key": key, "row": {name: plain(row[name]) for name in others}})))
    return found


def _of_key(question: Question, snapshot: StoreSnapshot, shards: Sequence[int]) -> list[Pair]:
    assert question.columns is not None
    full = question.table.keys_of(question.columns, shards)
    return [(key, value) for key, value in zip(full, snapshot.pairs.get(full), strict=True) if value is not None]


def _scanned(question: Question, task: int, snapshot: StoreSnapshot, shards: Sequence[int]) -> tuple[list[Pair], str]:
    """Pairs in the order of shards and keys, from where the question says."""
    after = b"" if question.after is None else question.after[1] + b"\0"
    found: list[Pair] = []
    for first, last in question.table.spans(question.columns, shards):
        if last <= after:
            continue
        left = question.limit + 1 - len(found)
        found += snapshot.pairs.scan(max(first, after), last, left)
        if len(found) > question.limit:
            return found[:-1], token_of(task, found[-2][0])
    return found, ""
