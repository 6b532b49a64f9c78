"""The two-version database of a task (seed 002, Database), as a contract.

    put        live copy:  one atomic write holds a step's changes and its progress
    commit     version v+1 = the live copy now; v stays; older ones are dropped
    open(v)    live copy = version v; later ones are dropped
    crash      live copy = some prefix of the writes (never torn); versions as the manifest lists them

The contract, in clauses that `tests/state/test_store_contract.py` checks on every implementation:
    1. `write` is atomic: after any crash, a write's changes and progress are both there, or both not.
    2. Writes survive a crash in order: what is left is the fold of a prefix of the writes.
    3. `progress` only goes back by a crash or by `open`.
    4. After `flush` returns, the writes before it survive any crash of the process or machine.
    5. `commit` adds one version; a crash within it leaves the old versions, with or without the new one.
    6. `open(v)` discards versions later than v; then the store reads as at `commit`.
    7. A store of another identity, or of another format, is refused (StateError); it is never read as if it fitted. If the
       wanted schema follows the store's, the store takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

GoOn = Callable[[], None]
"""Called now and then on the way by what may take long. Raises if it is useless to continue."""

Changes = Mapping[bytes, bytes | None]
"""Full keys (shard, table, key) and their new values; None deletes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a store is. It is written in one batch with the changes, so they cannot differ."""

    step: int
    """The last step applied; −1 if none is."""
    step_offset: int
    """Where to read on in the steps partition: after that step's record."""
    log_offset: int
    """Where to read on in the changelog partition: after the last applied change."""
    clock: int = 0
    """Milliseconds, when `log_offset` was current: a much older one may have missed a compacted tombstone. If the state is
    made from an empty one and not yet at a step: when that began."""
    base: int = -1
    """The offset of the record that opened the backfill whose state the first step found; −1: there was none. Logs begin
    after it, so a state with a base is never made again from only the logs."""
    ahead: int = -1
    """Where to read on in the changelog, if the changes from `log_offset` up to there are in the state too; −1: none are.
    Such a state is at no step. It is useful only if the rest of the changelog is applied.
    Where there is no changelog: in the steps partition, amid a selective rollback."""

    @property
    def applied(self) -> int:
        """Where to read on in the changelog, in both cases."""
        return max(self.log_offset, self.ahead)

    def partly(self, ahead: int, clock: int) -> Progress:
        """At the same step, with a part of the changelog after it."""
        return Progress(self.step, self.step_offset, self.log_offset, clock, self.base, ahead)

    def at(self, step: int, step_offset: int, log_offset: int, clock: int) -> Progress:
        """Further, with the same base."""
        return Progress(step, step_offset, log_offset, clock, self.base)


EMPTY = Progress(step=-1, step_offset=0, log_offset=0)


def low_watermark(copied: Iterable[Progress]) -> Progress:
    """The oldest version that a recovery may need, whatever fails: the older of the last two in the checkpoint store, in
    case the newer one is damaged. EMPTY while there are fewer. What is below goes.

        low(task) = max { v : a version after v is copied, too }

    `falkirk.checkpoint.frontiers.monitor` finds the same for the whole app, as its edges are logged: no task's low-watermark
    depends on another's.

    >>> at = [Progress(step, step_offset=10 * step, log_offset=0) for step in (3, 5, 9)]
    >>> low_watermark(at).step, low_watermark(at[:1]).step, low_watermark([at[0], at[0]]).step
    (5, -1, -1)
    """
    by_step = {p.step: p for p in copied if p.step >= 0}
    return by_step[sorted(by_step)[-2]] if len(by_step) > 1 else EMPTY


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose state this is. Checked at each opening of a store."""

    app: str
    task: str
    fingerprint: str
    """Of the stage's operators: their ids, versions and state schemas (not their code)."""
    schema: str = ""
    """The same in words (`falkirk.state.schema`), to decide which schemas follow it."""
    incarnation: str = ""
    """Of the app: tells it from an earlier one of its name that was deleted or reset."""


class Reader(Protocol):
    """A circuit's view of state: a store, or an overlay over one."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of full keys, in the same order; None for a missing key."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in the order of keys."""
        ...


class State(Reader, Protocol):
    """State that a step reads and changes."""

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stage new values; None deletes."""
        ...


class Store(Reader, Protocol):
    """One task's database."""

    @property
    def progress(self) -> Progress:
        """How far the live copy is."""
        ...

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply changes and progress at once. Raises DiskError if the disk is full: then nothing is applied."""
        ...

    def flush(self) -> None:
        """Make what was written so far survive a crash. Safe to call from another thread than `write`."""
        ...

    def versions(self) -> range:
        """The versions that can be opened: 1 or 2 after the first commit; version 0 is the empty store."""
        ...

    def open(self, version: int) -> None:
        """Make `version` the live copy and discard later ones. Raises StateError if it is not in `versions()`."""
        ...

    def commit(self) -> int:
        """Make the live copy the next version; drop all but the last two. Returns its number."""
        ...

    def close(self) -> None:
        """Flush, and close the files."""
        ...
