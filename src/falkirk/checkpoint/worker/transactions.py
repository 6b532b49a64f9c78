"""The transactions that a worker's core asks for, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint import takeover, transaction
from falkirk.checkpoint.ids import Nonce
from falkirk.checkpoint.ports import Log
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.instructions import Admit, Commit, Name, Release, Transaction


async def run(job: Transaction, log: Log, fresh: Callable[[], Nonce], host: str = "") -> Sequence[Fate]:
    """Run one. Returns what `WorkerCore.ended` asks for: the fates of a Commit's steps. `host`: this worker's, for people."""
    match job:
        case Name(tasks, mine):
            await takeover.name(log, tasks, mine, fresh, host)
        case Admit(tasks):
            for owned in tasks:
                await takeover.admit(log, owned)
        case Commit(steps, mine):
            return await transaction.commit_steps(log, steps, mine)
        case Release(tasks, mine):
            await transaction.release(log, tasks, mine)
    return ()
