"""Kills of everything that the travel app consists of, while clients ask, flights come and Spark computes epochs.

after each kill, some more questions must be answered. In the end

    rows in PostgreSQL  =  what clients were told                            each question once (`compare`)
    what was told       ∈  answers by some of the flights, and by one of the epochs or none (`allowed`)
    what is told now    =  the answer by all flights and the newest epoch (`settle`)
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import polars as pl
import psutil
from tests.epochs.harm import TARGETS as FOUND
from tests.postgres import Server
from tests.soak.check.murmur import partition_of
from tests.soak.system import signal_to
from tests.travel.oracle import Pair, Usual, airports, allowed, legs, routes, usual
from tests.travel.stand import Clients, Travel, settle, until

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.errors import UnreachableError
from falkirk.runtime.messages.epochs import BatchPart

PARTITIONS = 2
WEIGHTS = {
    "streaming worker": 10, "driver": 2, "spark's jvm": 2, "spark's python workers": 2, "gateway": 2, "other gateway": 1,
    "run": 3, "broker": 1, "PostgreSQL": 2,
}  # fmt: skip
"""What is killed, and how often beside the others."""


class Trial:
    """One run of it."""

    def __init__(
        self,
        app: Travel,
        clients: Clients,
        postgres: Server,
        broker: EmbeddedKafka,
        frame: pl.DataFrame,
        sent: int,
        *,
        kills: int,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        """`sent`: how many of the flights are in the topic already."""
        self._app, self._clients, self._postgres, self._broker = app, clients, postgres, broker
        self._frame, self._sent, self._kills, self._say = frame, sent, kills, say
        self._rng = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.epochs: dict[int, tuple[int, ...]] = {}
        """Up to where each epoch has read the partitions of the flights."""

    def run(self) -> None:
        """Raises AssertionError where it does not go on, or an answer is wrong."""
        self._answered(10)
        with self._app.epochs() as part:
            self._until(lambda: self._open(part) is not None and self.epochs, "an epoch is open")
            while self.killed.total() < self._kills:
                self._round(part)
            self._until(lambda: self._open(part) is False, "the last epoch is complete")
        self._clients.stop()
        known = [self._known(ends) for ends in self.epochs.values()]
        near = legs(routes(self._frame[: self._sent]))
        settle(self._app, self._clients, [*airports(self._frame[: self._sent]), "XXX"], known[-1], near)
        for found in self._clients.told.values():
            assert allowed(found, known, near), found

    def _round(self, part: BatchPart) -> None:
        what = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not self._harm(what):
            return
        self.killed[what] += 1
        self._say(f"{self.killed.total()}: {what} killed; {len(self._clients.told):,} answers, {self._sent:,} flights")
        self._answered(self._rng.randint(2, 12))
        if self._rng.random() < 0.3:
            more = self._sent + self._rng.randint(10, 60)
            self._app.send(self._frame[self._sent : more])
            self._sent = more
        if self._rng.random() < 0.2 and self._open(part) is False:
            part.ask("open")

    def _harm(self, what: str) -> bool:
        """kill -9. Returns whether there was anything to kill."""
        if what == "run":
            self._app.restart()
        elif what == "other gateway":
            self._app.restart_gateway()
        elif what == "broker":
            self._broker.kill()
            self._broker.start()
        elif what == "PostgreSQL":
            self._postgres.kill()
            self._answered(self._rng.randint(1, 8))
            self._postgres.start()
        else:
            found = list(self._targets(what))
            return bool(found) and signal_to(self._rng.choice(found), signal.SIGKILL)
        return True

    def _targets(self, what: str) -> Iterator[psutil.Process]:
        processes = psutil.Process(self._app.run.pid).children(recursive=True)
        if what != "gateway":
            yield from FOUND[what](processes)
            return
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if "falkirk.runtime.processes.gateway_process" in process.cmdline():
                    yield process

    def _open(self, part: BatchPart) -> bool | None:
        """Whether an epoch is open; None while nobody can tell. What each has read is noted."""
        try:
            part.look()
        except UnreachableError:
            return None
        if (opened := part.epochs.opened) is not None:
            self.epochs[opened.epoch] = tuple(int(read.end) for read in opened.division)
        return part.epochs.open

    def _known(self, ends: tuple[int, ...]) -> dict[Pair, Usual]:
        """What an epoch must have computed."""
        sent = self._frame[: self._sent]
        placed = [partition_of(key.encode(), PARTITIONS) for key in sent["carrier"]]
        parts = [sent.filter(pl.Series(placed) == partition)[:end] for partition, end in enumerate(ends)]
        return usual(pl.concat(parts))

    def _answered(self, more: int) -> None:
        wanted = len(self._clients.told) + more
        self._until(lambda: len(self._clients.told) >= wanted, f"{more} more answers are given")

    def _until(self, holds: Callable[[], object], what: str) -> None:
        until(self._app, self._clients, holds, what)
