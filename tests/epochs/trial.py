"""One trial: load, a run, harm at random moments, until so many epochs are complete; then the verdict."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.epochs import harm
from tests.epochs.check import Checker
from tests.soak.load import Sent
from tests.soak.system import ROOT, Helper, Run
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.errors import ClusterError

FLOW = Path(__file__).with_name("flows.py").relative_to(ROOT)
PARTITIONS = 3
MERCY = 45.0
"""Seconds without a further epoch after which nothing is killed until there is one: where a broker takes longer to start than
the next kill to come, no epoch could ever be done, and that would show nothing."""


@dataclass
class Trial:
    """`Trial(folder, epochs=3, seed=1).go()`."""

    folder: Path
    epochs: int
    """At least so many are completed,"""
    seed: int
    kills: int = 0
    """and at least so many processes or sets of them killed."""
    rate: int = 300
    harms: Sequence[str] = tuple(harm.ALL)
    pause: tuple[float, float] = (3.0, 60.0)
    """Seconds from one harm to the next."""
    stall: float = 2 * PATIENCE_S
    """Seconds without a further epoch after which the trial has failed."""
    show: Callable[[str], object] = print
    harmed: Counter[str] = field(default_factory=Counter)
    complete: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    records: int = 0
    longest: float = 0.0
    """Seconds between two epochs."""

    def go(self) -> list[str]:
        """What is wrong; nothing, if all is well. Logs and actions stay in the folder."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        rng = random.Random(self.seed)
        broker = EmbeddedKafka(self.folder / "kafka", console=Console(quiet=True))
        brokers = broker.start()
        _topics(brokers)
        run = Run(f"{FLOW}:flow", ("--brokers", self.address(brokers)), 1, 6.0, self.folder.absolute())
        run.command += ["--spark", "local[2]", "--spark-set", "spark.speculation=true"]
        load = Helper(
            "tests.soak.load",
            [brokers, "bids", str(self.seed), str(self.rate)],
            Sent,
            self.folder / "logs" / "load.log",
        )
        checker = Checker(brokers)
        try:
            run.start()
            with suppress(KeyboardInterrupt):
                self._harm_until_done(run, broker, checker, rng)
            load.kill()
            # It may have been started this moment, and not be able to leave yet.
            deadline = time.monotonic() + PATIENCE_S
            while not run.workers() and run.ended() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            code = run.leave(60)
            if code != 0:
                self.wrong.append(f"the run left with code {code}")
            run.start("--until", "end")
            if (code := run.wait(2 * self.stall)) != 0:
                self.wrong.append(f"the last run ended with code {code}: see {run.logs}")
            self.complete = checker.look()
            self.wrong += checker.judge(PARTITIONS) + checker.judge_told(PARTITIONS)
            self.records = checker.records
        finally:
            load.kill()
            run.kill_all()
            broker.stop()
        return self.wrong

    def address(self, brokers: str) -> str:
        """Where the run, and Spark with it, find the brokers."""
        return brokers

    def done(self) -> bool:
        """Whether there was harm enough."""
        return sum(self.complete.values()) >= self.epochs and self.harmed.total() >= self.kills

    def _harm_until_done(self, run: Run, broker: EmbeddedKafka, checker: Checker, rng: random.Random) -> None:
        next_harm, moved, began = time.monotonic() + 15, time.monotonic(), time.monotonic()
        while not self.done():
            before = sum(self.complete.values())
            self.complete = self._look(checker)
            now = time.monotonic()
            if sum(self.complete.values()) > before:
                self.longest, moved = max(self.longest, now - moved), now
                done = ", ".join(f"{n} of {stage}" for stage, n in self.complete.items())
                self.show(f"{now - began:5.0f} s  epochs: {done};  killed: {dict(self.harmed)}")
            if now - moved > self.stall:
                self.wrong.append(f"no epoch was completed for {self.stall:.0f} s")
                return
            if (code := run.ended()) is not None:
                # A run that finds no broker as it starts may say so and end. One that runs must outlast the broker.
                if code != ClusterError.exit_code or run.worked:
                    self.wrong.append(f"the run ended by itself with code {code}: see {run.logs}")
                    return
                run.start()
            if self.harms and now > next_harm and now - moved < MERCY:
                what = rng.choice(list(self.harms))
                if harm.harm(what, run, broker, rng):
                    self.harmed[what] += 1
                    with (self.folder / "actions.jsonl").open("a") as out:
                        out.write(json.dumps({"at": time.strftime("%H:%M:%S"), "what": what}) + "\n")
                next_harm = time.monotonic() + rng.uniform(*self.pause)
            time.sleep(0.2)

    def _look(self, checker: Checker) -> dict[str, int]:
        try:
            return checker.look()
        except (KafkaException, RuntimeError):
            return self.complete  # the topics are not there yet, or the broker is not


def _topics(brokers: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("bids", "added", "live", "told")])
    # A table; but every record of every epoch is to be there in the end.
    made |= admin.create_topics([NewTopic("totals", PARTITIONS, 1, config={"retention.ms": "-1"})])
    for future in made.values():
        future.result()
