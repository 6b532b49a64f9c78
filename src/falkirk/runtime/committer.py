"""The one thread in which transactions happen, and the threads in which tasks recover."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from falkirk.checkpoint import driver
from falkirk.checkpoint.ports import Log
from falkirk.checkpoint.takeover import admit, name, parts, recover
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase
from falkirk.checkpoint.transaction import Fate, commit_steps, release
from falkirk.runtime.clock import WallClock
from falkirk.runtime.identity import fresh_nonce
from falkirk.runtime.replay import Replays
from falkirk.runtime.stores import TaskStores


class Committer:
    """Runs the protocol's coroutines: transactions one after the other, recoveries beside them."""

    def __init__(self, log: Log, host: str) -> None:
        self._log, self._host = log, host
        self._mine: list[Owned] = []
        self._transactions = ThreadPoolExecutor(1, "falkirk-commit")
        self._recoveries = ThreadPoolExecutor(1, "falkirk-recover")

    def begin(self) -> None:
        """Make the first producer: what an earlier process of this identity left open is decided then."""
        self._transactions.submit(lambda: driver.run(self._log.renew())).result()

    def name(self, tasks: Sequence[Owned]) -> Future[bool]:
        """Clause 5a."""

        def work() -> bool:
            mine = self._ownerships()
            self._mine = [*mine, *tasks]
            return driver.run(name(self._log, tasks, mine, fresh_nonce, self._host))

        return self._transactions.submit(work)

    def recover(
        self, tasks: Sequence[Owned], stores: TaskStores, replays: Replays
    ) -> list[tuple[list[Owned], Future[None]]]:
        """Clauses 5b to 5d, part by part: each task of a part is RUNNING after its end, or IDLE."""
        ends = [(part, Future[None]()) for part in parts(tasks)]
        ahead = iter(ends)

        def rolled(part: list[Owned]) -> None:
            self._transactions.submit(lambda: [admit(owned) for owned in part]).result()
            next(ahead)[1].set_result(None)

        def work() -> None:
            try:
                driver.run(recover(self._log, stores, replays, WallClock(), tasks, rolled))
            finally:
                replays.close()

        def failed(work: Future[None]) -> None:
            for _, end in ahead:
                end.set_exception(work.exception())

        self._recoveries.submit(work).add_done_callback(failed)
        return ends

    def commit(self, steps: Sequence[ClosedStep]) -> Future[list[Fate]]:
        """Clauses 3 and 4."""
        return self._transactions.submit(lambda: driver.run(commit_steps(self._log, steps, self._ownerships())))

    def release(self, tasks: Sequence[Owned]) -> None:
        """Leave tasks, and wait."""
        self._transactions.submit(lambda: driver.run(release(self._log, tasks, self._ownerships()))).result()

    def _ownerships(self) -> list[Owned]:
        return [owned for owned in self._mine if owned.phase is not Phase.IDLE]

    def close(self) -> None:
        """Wait for what is under way."""
        self._recoveries.shutdown(cancel_futures=True)
        self._transactions.shutdown()
