"""One soak: a load, a flow under it, faults by the seed's schedule, and a reader that checks all that comes out.

start broker, load, reader, run ──▶ for each fault: calm · harm · wait until every task puts out again
  ──▶ stop the load ──▶ the flow settles all of it ──▶ SIGTERM: exit 0 ──▶ run --until end: adds nothing, exit 0 ──▶ verdict
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.soak.check import specs
from tests.soak.check.findings import Findings, Kind
from tests.soak.freeze import Freezer
from tests.soak.load import KEYS, Sent
from tests.soak.progress import Progress
from tests.soak.reader import Status
from tests.soak.recovery import Recoveries
from tests.soak.schedule import MIX, SEVERAL, Fault, Harm, is_kill, schedule
from tests.soak.site import Site, site
from tests.soak.system import DAILY, FLOWS, RELATIONAL, Helper, Run, now, signal_to
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.errors import ClusterError

FILES = {"daily": DAILY, "relational": RELATIONAL}
"""Where the flows are that are in a file of their own."""
DAY_S = 86_400
TICK_S = 0.02
ENDINGS = 5
"""How often a run may end by itself before the soak is given up; it has failed by then, and goes on to find more."""
LAST_LINES = 6
"""Of a run's log, that a finding quotes."""
BEHIND = 10_000
"""Records. With more to read, the reader cannot tell yet whether a task is back."""
AFTER_SESSION_S = 2.0
"""How much longer than its session a worker is stopped: others must own its tasks when it wakes."""
AFTER_WAKING_S = 1.0
"""What the zombie has to do harm in, before it may be hurt again."""
VICTIMS = 10
"""How many workers are looked at for one that has a transaction open."""


@dataclass(frozen=True, slots=True)
class Config:
    """One soak. `folder` gets its logs and state, and keeps them if anything is found."""

    kills: int
    seed: int
    folder: Path
    flow: str = "mixed"
    rate: int = 1000
    workers: int = 2
    partitions: int = 4
    session_s: float = 6.0
    brokers: int = 1
    """Of one cluster; with several their leaders are killed and moved, too."""
    patience_s: float = PATIENCE_S
    """How long a task may put out nothing, after a harm or at the end."""


def _load_of(flow: str) -> list[int]:
    """What a flow needs of its load: with event time, bids begin a day ago. However many come in a second, none is ahead of
    the clock, and none is so old that topics would not keep it."""
    return [0, KEYS, int((now() - DAY_S) * 1000)] if flow == "relational" else []


class Inexact(Exception):
    """The reader found something. The run is stopped there, for its logs are trimmed as it goes on."""


class Soak:
    """Runs one soak; `show` is called with the progress as often as there is some."""

    def __init__(self, config: Config, show: Callable[[Progress], None]) -> None:
        self.config, self.show = config, show
        self.progress = Progress(config.kills)
        self.recoveries = Recoveries()
        self.conduct = Findings()
        self.examples: list[str] = []
        self.drained = self.verdict = self.stopping = False
        self.broker_down = self.broker_up = 0.0
        self.behind, self.furthest = 0, ""
        folder = config.folder.absolute()
        (folder / "logs").mkdir(parents=True)
        self.actions = (folder / "actions.jsonl").open("w")
        self.stack = ExitStack()
        self.helpers: list[Helper[Any]] = []
        self.run: Run | None = None

    def go(self) -> dict[str, Any]:
        """The whole of it. Returns the report, which is in the folder too."""
        try:
            self._go()
        except TimeoutError as error:
            self.conduct.add(Kind.CONDUCT, "the soak", f"ended early: {error}")
        except Inexact:
            pass
        finally:
            self._end()
        return self.report()

    def _go(self) -> None:
        config, folder = self.config, self.config.folder.absolute()
        target = f"{FILES.get(config.flow, FLOWS)}:{config.flow}"
        place = self.site = self.stack.enter_context(
            site(target, config.flow, folder, config.partitions, config.brokers)
        )
        run = self.run = Run(target, self._options(place), config.workers, config.session_s, folder)
        logs = config.folder / "logs"
        spec = f"tests.soak.check.specs:{config.flow}"
        self.reader = Helper("tests.soak.reader", [place.own, spec, place.source], Status, logs / "reader.log")
        wanted = [config.seed, config.rate, *_load_of(config.flow)]
        self.load = Helper("tests.soak.load", [place.source, "bids", *map(str, wanted)], Sent, logs / "load.log")
        self.helpers = [self.reader, self.load]
        sinks = [stage.outputs[0].topic for stage in getattr(specs, config.flow).stages]
        self.freezer = Freezer(place.own, sinks, config.partitions)
        self._act("start")
        run.start()
        self._until(lambda: len(self.recoveries.owners) >= config.partitions, "the first output of all tasks")
        self._torment(run)
        self._until_healed()
        self._finish(run)

    def _options(self, place: Site) -> Sequence[str]:
        """What `falkirk run` is told of where it runs."""
        return place.options

    def _torment(self, run: Run) -> None:
        """All harm of the schedule."""
        for fault in schedule(self.config.kills, self.config.seed, MIX if self.config.brokers == 1 else SEVERAL):
            if self.stopping:
                break
            self._suffer(fault, run)

    def _suffer(self, fault: Fault, run: Run) -> None:
        self.progress.doing = "calm"
        self._for(fault.calm)
        self.progress.doing = fault.harm.value
        dice = random.Random(fault.dice)
        match fault.harm:
            case Harm.WORKER:
                victim, within = self._victim(fault, run, dice)
                signal_to(victim, signal.SIGKILL)
                self._hurt(fault, within, pid=victim.pid)
            case Harm.SUPERVISOR:
                pid = run.supervisor.pid
                for orphan in run.kill_supervisor():
                    self.conduct.add(Kind.CONDUCT, f"pid {orphan.pid}", f"outlived its supervisor {pid}")
                run.start()
                self._hurt(fault, pid=pid)
            case Harm.RUN:
                pid = run.supervisor.pid
                run.kill_all()
                run.start()
                self._hurt(fault, pid=pid)
            case Harm.BROKER:
                node = self._next_broker()
                self.broker_down = now()
                node.kill()
                if (cluster := self.site.cluster) is not None:
                    self._hurt(fault, broker=node.data_dir.name)
                    self._beside(lambda: cluster.given_up(node))
                node.start()
                self.broker_up = now()
                if cluster is None:
                    self._hurt(fault, down_s=round(self.broker_up - self.broker_down, 3))
                elif not fault.hurry:
                    self._beside(cluster.whole)
            case Harm.MOVE:
                cluster = self.site.cluster
                assert cluster is not None
                node = self._next_broker()
                self._hurt(fault, broker=node.data_dir.name)
                self._beside(node.stop)
                self._beside(node.start)
                self._beside(cluster.whole)
                self._act("leaders moved", partitions=cluster.balance())
            case Harm.PAUSE:
                victim, within = self._victim(fault, run, dice)
                signal_to(victim, signal.SIGSTOP)
                self._hurt(fault, within, pid=victim.pid)
                self._for(self.config.session_s + AFTER_SESSION_S)
                signal_to(victim, signal.SIGCONT)
                self._act("wake", pid=victim.pid)
                self._for(AFTER_WAKING_S)
        self.progress.kills[fault.harm.value] += 1
        if not fault.hurry:
            self._until_healed()

    def _next_broker(self) -> EmbeddedKafka:
        """One after another."""
        harmed = self.progress.kills[Harm.BROKER] + self.progress.kills[Harm.MOVE]
        return self.site.nodes[harmed % len(self.site.nodes)]

    def _beside(self, action: Callable[[], object]) -> None:
        """Do what takes time while everything is followed as ever."""
        with ThreadPoolExecutor(1) as aside:
            doing = aside.submit(action)
            while not doing.done():
                self._tick()
            doing.result()

    def _victim(self, fault: Fault, run: Run, dice: random.Random) -> tuple[psutil.Process, bool]:
        """Whom the fault hits, and whether it has been stopped within a transaction: if it is to be, the first that is."""
        owning = fault.within or fault.harm is Harm.PAUSE or dice.random() < 0.9
        victim = self._worker(run, dice, owning=owning)
        for _ in range(VICTIMS if fault.within else 0):
            if self.freezer.freeze(victim, dice):
                return victim, True
            self._tick()
            victim = self._worker(run, dice, owning=True)
        return victim, False

    def _worker(self, run: Run, dice: random.Random, *, owning: bool) -> psutil.Process:
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = sorted(run.workers() if owning else run.children(), key=lambda child: child.pid)
            return bool(found)

        self._until(there, "a worker to hurt")
        return dice.choice(found)

    def _hurt(self, fault: Fault, within: bool = False, **more: Any) -> None:
        kind = fault.harm.value + (" in a transaction" if within else "")
        self.recoveries.hurt(kind, now())
        self._act(kind, hurry=fault.hurry, **more)

    def _finish(self, run: Run) -> None:
        """No more input: all must come out, the run must leave cleanly, and a run over nothing must add nothing."""
        self.progress.doing = "settling"
        self.load.stop()
        self._until(lambda: self.load.process.poll() is not None, "the generator to end")
        self._tick()
        sent = json.dumps({"bids": self.progress.sent})
        self._act("load ended", sent=self.progress.sent)
        self.reader.tell(f"drain {sent}")
        self._until(lambda: self.drained, "the flow to settle all of its input")
        self._exit("SIGTERM", run.leave(60.0), run)
        self.run = None  # from here on its end is no surprise
        self.progress.doing = "running over nothing"
        run.start("--until", "end")
        self._exit("run --until end", run.wait(self.config.patience_s), run)
        self.progress.doing = "verdict"
        self.reader.tell("finish")
        self._until(lambda: self.verdict, "the reader's verdict")

    def _exit(self, what: str, code: int | None, run: Run) -> None:
        self._act(what, exit_code=code)
        if code != 0:
            words = "did not end, and was killed" if code is None else f"ended with exit code {code}"
            last = " / ".join(run.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            self.conduct.add(Kind.CONDUCT, what, f"{words}; its last lines: {last}")

    def _until_healed(self) -> None:
        self.progress.doing += ": recovering" if self.progress.doing != "calm" else ""
        deadline = time.monotonic() + self.config.patience_s
        limit, renew_at = deadline + 4 * self.config.patience_s, deadline - self.config.patience_s / 2
        while self.recoveries.open and not self.stopping:
            if self.behind > BEHIND:
                # On a busy machine the reader falls behind: what is not read yet may show that all tasks are back.
                deadline = min(time.monotonic() + self.config.patience_s, limit)
            if time.monotonic() > renew_at:
                renew_at = limit
                missing = [wound.missing for wound in self.recoveries.open]
                self._act("the reader reads on with other clients", missing=missing, behind=self.behind)
                self.reader.tell("renew")
            if time.monotonic() > deadline:
                unread = f"; the reader is {self.behind:,} records behind, {self.furthest}" if self.behind else ""
                for wound in self.recoveries.open:
                    words = f"nothing from {wound.missing} for {now() - wound.at:.0f} s{unread}"
                    self.conduct.add(Kind.CONDUCT, f"{wound.kind} at {wound.at:.3f}", words)
                raise TimeoutError(f"the run does not recover: nothing from {self.recoveries.open[0].missing}")
            self._tick()

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.config.patience_s
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {self.config.patience_s:g} s for {what}")
            self._tick()

    def _for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._tick()

    def _tick(self) -> None:
        time.sleep(TICK_S)
        progress = self.progress
        for sent in self.load.news():
            progress.sent = sent.acknowledged
        for status in self.reader.news():
            progress.steps, progress.records, progress.read = status.steps, status.records, status.read
            progress.counts, progress.longest_gap = status.counts, status.longest_gap
            self.drained, self.verdict = status.drained, status.verdict
            self.behind, self.furthest = status.behind, status.furthest
            self.recoveries.see(status.settled)
            self.examples = status.examples or self.examples
            for trouble in status.troubles:
                self._act("reader", trouble=trouble)
        if self.run is not None and (code := self.run.ended()) is not None:
            self._act("ended by itself", exit_code=code)
            # A run that finds no broker as it starts may say so and end. One that runs must outlast the broker.
            if not (code == ClusterError.exit_code and self.run.started < self.broker_up and not self.run.worked):
                self.conduct.add(Kind.CONDUCT, f"run {self.run.count}", f"ended by itself with exit code {code}")
                if self.conduct.total >= ENDINGS:
                    raise TimeoutError("the run does not stay up")
            self.run.start()
        exact = not sum(count for kind, count in progress.counts.items() if kind != Kind.CONDUCT)
        progress.counts[Kind.CONDUCT.value] = self.conduct.total
        progress.recoveries = self.recoveries.summary()
        self.show(progress)
        if not exact and not self.verdict:
            raise Inexact

    def _act(self, what: str, **more: Any) -> None:
        self.actions.write(json.dumps({"at": round(now(), 3), "what": what, **more}) + "\n")
        self.actions.flush()

    def report(self) -> dict[str, Any]:
        """What was done, what was seen, what was found."""
        p = self.progress
        found = [*self.examples, *self.conduct]
        return {
            "config": {**asdict(self.config), "folder": str(self.config.folder)},
            "seconds": round(now() - p.began, 1),
            "kills": sum(count for harm, count in p.kills.items() if is_kill(Harm(harm))),
            "harms": dict(p.kills),
            "sent": p.sent,
            "steps": p.steps,
            "records": p.records,
            "counts": p.counts,
            "found": found,
            "recovery_s": p.recoveries,
            "longest_gap": {"seconds": round(p.longest_gap[0], 3), "task": p.longest_gap[1], "until": p.longest_gap[2]},
            "exact": self.verdict and not found and not p.found,
        }

    def _end(self) -> None:
        for helper in self.helpers:
            helper.kill()
        if self.run is not None:
            self.run.kill_all()
        self.stack.close()
        self.actions.close()
        self.progress.counts[Kind.CONDUCT.value] = self.conduct.total
        report = self.report()
        (self.config.folder / "report.json").write_text(json.dumps(report, indent=2))
        if report["exact"]:
            for name in ("kafka", "state", "logs"):
                shutil.rmtree(self.config.folder / name, ignore_errors=True)
