"""An app with a given number of keys in its state and a steady load, and a reader that sees how it recovers.

Recovered is a task when the reader has the first output of any step that a new ownership of it committed. Outputs that
were appended before the harm and read after it are of an old ownership: they do not count.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from harness.broker import PARTITIONS
from harness.processes import Failed
from harness.setting import Setting
from workload import bids
from workload.app import App

RATE = 1_000
SLOWEST = 20_000
"""Records a second below which the filling of a state is given up."""
PATIENCE_S = 60.0
SLOWEST_RESTORE = 50_000
"""Keys a second."""


@dataclass(frozen=True, slots=True)
class Healed:
    """A recovery, in seconds after the harm."""

    named: float
    """Until the reader saw the first new name: a worker was there and in the group."""
    first: float
    """Until it had an output of the first task."""
    last: float
    """Until it had one of every task."""


class Steady:
    """One app, filled and running, until `close`."""

    def __init__(self, setting: Setting, regime: str, keys: int) -> None:
        self.keys, self.setting = keys, setting
        kafka, processes = setting.kafka, setting.processes
        self.name = setting.name(f"state-{regime}-{keys}")
        source, target = f"{self.name}.in", f"{self.name}.out"
        kafka.make(source)
        kafka.make(target)
        self.app = App(processes, kafka.brokers, setting.folder, regime, self.name, source, target)
        bids.send(kafka.brokers, source, bids.fill(keys))
        self.app.until_end(60 + keys / SLOWEST)
        self._witness = processes.helper(
            f"{self.name}.witness", "workload.witness", kafka.brokers, self.app.steps, target
        )
        if self._witness.said(60) is None:
            raise Failed(f"{self.name}: the reader does not find its topics")
        self._known: set[tuple[str, str]] = set()
        began = time.time()
        self.app.start()
        self._load = processes.helper(f"{self.name}.load", "workload.bids", kafka.brokers, source, RATE, keys)
        self.healed(began)

    def healed(self, harm: float) -> Healed:
        """Wait until every task has recovered from a harm at that time, in seconds since 1970. Raises Failed."""
        named: dict[tuple[str, str], float] = {}
        outputs: dict[str, float] = {}
        deadline = harm + PATIENCE_S + self.keys / SLOWEST_RESTORE
        while len(outputs) < PARTITIONS:
            if time.time() > deadline:
                raise Failed(f"{self.name}: {len(outputs)} of {PARTITIONS} tasks recovered in {deadline - harm:.0f} s")
            self.app.run.check()
            if (said := self._witness.said(0.5)) is None:
                continue
            ownership = said["task"], said["nonce"]
            if "named" in said:
                named[ownership] = said["named"]
            elif ownership not in self._known:
                self._known.add(ownership)
                outputs.setdefault(said["task"], said["output"])
        return Healed(
            min(named.values(), default=harm) - harm, min(outputs.values()) - harm, max(outputs.values()) - harm
        )

    def close(self) -> None:
        """End the load, the reader and the app, and let go of what they took."""
        self._load.finish()
        self.app.kill_all()
        self._witness.finish()
        self.setting.kafka.delete(self.name)
        shutil.rmtree(self.app.state, ignore_errors=True)
