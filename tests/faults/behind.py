"""The runs of tests/soak and tests/epochs behind the proxy: what they check is checked as ever, past the proxy.

    load ──────────────────────────────▶ broker ──────────────────────────────▶ reader, checker
                                           ▲
    workers, drivers, executors ──▶ proxy ─┘      killed on the way, so many faults apart

Rates are such that a run still spends more time on its work than on starting again after a fault.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.epochs.trial import Trial
from tests.faults.faults import Plan
from tests.faults.frames import Api
from tests.faults.journal import Journal
from tests.faults.proxy import Proxy
from tests.soak.progress import Progress
from tests.soak.schedule import Harm, schedule
from tests.soak.site import Site
from tests.soak.soak import Config, Soak
from tests.soak.system import Run

STREAMS: Mapping[int, float] = {
    Api.END_TXN: 0.12,
    Api.ADD_OFFSETS_TO_TXN: 0.05,
    Api.ADD_PARTITIONS_TO_TXN: 0.04,
    Api.TXN_OFFSET_COMMIT: 0.06,
    Api.PRODUCE: 0.01,
    Api.INIT_PRODUCER_ID: 0.02,
}
"""How many requests of each API suffer a fault where a worker commits ten times a second."""

EPOCHS: Mapping[int, float] = {**STREAMS, Api.PRODUCE: 0.02, Api.ADD_PARTITIONS_TO_TXN: 0.05}
"""The same where a part of the transactions publish slices of an epoch: those carry no offsets."""

KILLS: Mapping[Harm, float] = {Harm.WORKER: 0.85, Harm.RUN: 0.1, Harm.PAUSE: 0.05}
"""What is done to the processes beside: the broker, to which all held requests go, is left alone."""

FAULTS_A_KILL = 100
"""So many faults are between two of these."""

PUBLISHERS = ("epochs.totals.", "epochs.added.")
"""How the transactional ids of producers begin that publish slices of epochs."""


def planned(brokers: str, seed: int, rates: Mapping[int, float], folder: Path) -> Proxy:
    """A proxy before these brokers, which writes down what it does."""
    return Proxy(brokers, Plan(seed, rates), Journal(f"seed {seed}", folder / "faults.jsonl"))


class Streams(Soak):
    """A soak with faults between the workers and the broker; it ends after so many of them. The load and the reader are
    connected with the broker itself."""

    proxy: Proxy | None = None

    def __init__(self, config: Config, faults: int, show: Callable[[Progress], None]) -> None:
        super().__init__(config, show)
        self.faults = faults

    @property
    def suffered(self) -> Counter[tuple[str, str]]:
        """Faults so far, by API and kind."""
        return self.proxy.journal.faults if self.proxy else Counter()

    def _options(self, place: Site) -> Sequence[str]:
        self.proxy = planned(place.own, self.config.seed, STREAMS, self.config.folder)
        self.stack.enter_context(self.proxy)
        return ("--brokers", self.proxy.address)

    def _torment(self, run: Run) -> None:
        harms = iter(schedule(self.config.kills, self.config.seed, KILLS))
        dice = random.Random(self.config.seed)
        while True:  # at least once: on a busy machine the start alone may meet all faults
            enough = min(self.faults, self.suffered.total() + round(FAULTS_A_KILL * dice.uniform(0.5, 1.5)))
            self.progress.doing = "faults"
            self._until(lambda enough=enough: self._over(enough), "further faults")  # type: ignore[misc]
            if (harm := next(harms, None)) is not None and not self.stopping:
                self._suffer(harm, run)
            if self._over(self.faults):
                return

    def _over(self, faults: int) -> bool:
        return self.stopping or self.suffered.total() >= faults


@dataclass
class Epochs(Trial):
    """Batch parts with faults between the brokers and everything that `falkirk run` starts, Spark's executors among it."""

    faults: int = 0
    harms: Sequence[str] = ("driver", "spark's python workers", "streaming worker", "run")
    stall: float = 600.0
    proxy: Proxy | None = field(default=None, init=False)

    @property
    def suffered(self) -> Counter[tuple[str, str]]:
        """Faults so far, by API and kind."""
        return self.proxy.journal.faults if self.proxy else Counter()

    @property
    def publishing(self) -> int:
        """How many of them hit producers that publish slices of epochs."""
        entries = self.proxy.journal.entries if self.proxy else []
        return sum(e.is_fault and e.request.transactional_id.startswith(PUBLISHERS) for e in entries)

    def go(self) -> list[str]:
        try:
            return super().go()
        finally:
            if self.proxy:
                self.proxy.close()

    def address(self, brokers: str) -> str:
        self.proxy = planned(brokers, self.seed, EPOCHS, self.folder)
        self.proxy.listen()
        return self.proxy.address

    def done(self) -> bool:
        return super().done() and self.suffered.total() >= self.faults
