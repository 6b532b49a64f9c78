"""The one thread that runs a commit domain's transactions, and the threads in which its tasks recover."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.ports import Log
from falkirk.checkpoint.takeover import abandon, fence, recover
from falkirk.checkpoint.tasks import Owned, Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker import transactions
from falkirk.checkpoint.worker.instructions import Transaction
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import fresh_nonce
from falkirk.runtime.worker.reading.replay import KafkaReplayer
from falkirk.runtime.worker.stores import TaskStores

SERVE_S = 1.0
"""How often an idle producer's events are served: its log lines wait in memory until then."""

THREADS = 256
"""The most tasks of a domain that are in recovery. Most of them wait for their turn or for the checkpoint store."""


class Committer:
    """Runs the protocol's coroutines: one transaction at a time, and recoveries in parallel with it and each other."""

    def __init__(self, log: Log, host: str, serve: Callable[[], None]) -> None:
        """`serve`: serves the events of the log's producer."""
        self._log, self._host, self._serve = log, host, serve
        self._served_at = 0.0
        self._transactions = ThreadPoolExecutor(1, "falkirk-commit")
        # One for each task that recovers or waits for it. The stores limit how many work at a time (`TaskStores.recovering`).
        self._recoveries = ThreadPoolExecutor(THREADS, "falkirk-recover")

    def begin(self) -> Future[None]:
        """Make the first producer: this decides what an earlier process of this identity left open."""
        return self._transactions.submit(lambda: driver.run(self._log.renew()))

    def transact(self, job: Transaction) -> Future[Sequence[Fate]]:
        """Run a transaction."""
        return self._transactions.submit(lambda: driver.run(transactions.run(job, self._log, fresh_nonce, self._host)))

    def recover(
        self, tasks: Sequence[Owned], stores: TaskStores, replays: Mapping[TaskId, KafkaReplayer]
    ) -> list[Future[None]]:
        """Clauses 5b and 5c, for tasks that were named together: fenced together, then each rolled by itself.

        When the future of a task is done, the task is ROLLED, or it is IDLE and its store is closed. For a task that was not
        named, or that the group has taken away, nothing else happens.
        """
        ends = [Future[None]() for _ in tasks]

        def fence_all() -> None:
            todo = list(zip(tasks, ends, strict=True))
            try:
                if named := [owned for owned in tasks if owned.phase is Phase.FENCING]:
                    driver.run(fence(self._log, named))
                while todo:
                    owned, end = todo[0]
                    self._recoveries.submit(self._recover, owned, stores, replays[owned.task.id], end)
                    todo.pop(0)
            except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
                for owned, end in todo:
                    try:
                        _give_up(owned, stores, replays[owned.task.id])
                    finally:
                        end.set_exception(error)

        self._recoveries.submit(fence_all)
        return ends

    def _recover(self, owned: Owned, stores: TaskStores, replays: KafkaReplayer, end: Future[None]) -> None:
        try:
            try:
                if owned.phase is Phase.FENCING:
                    with stores.recovering:
                        driver.run(recover(self._log, stores, replays, WallClock(), owned))
            finally:
                _give_up(owned, stores, replays)
        except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
            end.set_exception(error)
        else:
            end.set_result(None)

    def idle(self) -> None:
        """Nothing is being committed: serve the producer's events, once in SERVE_S seconds."""
        if time.monotonic() - self._served_at > SERVE_S:
            self._served_at = time.monotonic()
            self._transactions.submit(self._serve)

    def close(self) -> None:
        """Wait for the jobs in progress."""
        self._recoveries.shutdown(cancel_futures=True)
        self._transactions.shutdown()


def _give_up(owned: Owned, stores: TaskStores, replays: KafkaReplayer) -> None:
    """A recovery has ended: close what it leaves open, unless the task can run."""
    if owned.phase not in (Phase.ROLLED, Phase.IDLE):
        abandon(owned)
    stores.discard(owned.task.id)
    replays.close()
