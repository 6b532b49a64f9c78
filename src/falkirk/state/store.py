"""The two-version database of a task (seed 002, Database), as a contract.

    put        live copy:  one atomic write holds a step's changes and its progress
    commit     version v+1 = the live copy now; v stays; older ones go
    open(v)    live copy = version v; later versions go
    crash      live copy = some prefix of the writes (never torn); versions as the manifest lists them

The contract, in clauses that `tests/state/test_store_contract.py` checks on every implementation:
    1. `write` is atomic: after any crash, changes and progress of a write are both there or both not.
    2. Writes survive a crash in order: what is there is the fold of a prefix of the writes.
    3. `progress` never goes back but by a crash or by `open`.
    4. After `flush` returns, the writes before it survive any crash of the process or machine.
    5. `commit` adds one version; a crash within it leaves the old versions, with or without the new one.
    6. `open(v)` discards versions later than v; what it gives reads as at `commit`.
    7. A store of another identity, or of another format, is refused (StateError); it is never read as if it fitted. One whose
       schema has been followed by the one asked for has that from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Changes = Mapping[bytes, bytes | None]
"""Full keys (shard, table, key) and their new values; None deletes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a store is: written in the same batch as the changes, so that the two cannot disagree."""

    step: int
    """The last step applied; −1 when none is."""
    step_offset: int
    """Where in the steps partition to read on: one past that step's record."""
    log_offset: int
    """Where in the changelog partition to read on: one past the last change applied."""
    clock: int = 0
    """Milliseconds, when `log_offset` was current: a much older one may have missed a compacted tombstone."""
    base: int = -1
    """Where the record lies that opened the backfill which made the state that the first step found; −1: it found none.
    Logs begin after it, so a state that has a base is never made again from logs alone."""

    def at(self, step: int, step_offset: int, log_offset: int, clock: int) -> Progress:
        """Further on, from the same beginning."""
        return Progress(step, step_offset, log_offset, clock, self.base)


EMPTY = Progress(step=-1, step_offset=0, log_offset=0)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose state this is. Checked whenever a store is opened."""

    app: str
    task: str
    fingerprint: str
    """Of the stage's operators: their ids, versions and state schemas (not their code)."""
    schema: str = ""
    """The same in words (`falkirk.state.schema`), so that it can be told what follows on it."""
    incarnation: str = ""
    """Of the app: what tells it from an earlier one of the same name, that was deleted or reset."""


class Reader(Protocol):
    """What a circuit may ask of state: a store, or an overlay over one."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values under full keys, in the order asked; None where there is none."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in the order of keys."""
        ...


class Store(Reader, Protocol):
    """One task's database."""

    @property
    def progress(self) -> Progress:
        """How far the live copy is."""
        ...

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply changes and progress at once. Raises DiskError when the disk is full: nothing is applied then."""
        ...

    def flush(self) -> None:
        """Make what was written so far survive a crash. Safe to call from another thread than `write`."""
        ...

    def versions(self) -> range:
        """The versions that can be opened: length 1 or 2 once one was committed; version 0 is the empty store."""
        ...

    def open(self, version: int) -> None:
        """Make `version` the live copy and discard later ones. Raises StateError if it is not in `versions()`."""
        ...

    def commit(self) -> int:
        """Make the live copy the next version; drop all but the last two. Returns its number."""
        ...

    def close(self) -> None:
        """Flush and let go of the files."""
        ...
