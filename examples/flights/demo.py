"""The real flights of 2013 through a real Kafka, while workers are killed: `make demo`.

1. start a Kafka, and on it `falkirk run` with two workers, a process of its own
2. send a tenth of the 336,776 flights, and ask for an epoch of what is usual on each route: Spark computes it, and the stream
   looks it up from there on
3. send the others; meanwhile kill -9 a worker every other second, and half-way the whole run, started again at once
4. let the run leave, and `falkirk run --until end` finish what is left: the last steps, and an epoch on Spark; meanwhile
   kill -9 Spark's driver
5. read all outputs back at read_committed and compare them with Polars: the exit code is 0 if they are exact
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import click
from check import OUTPUTS, compare, read_back
from data import flights, make_topic, send
from rich.console import Console
from run import WORKERS, Run, kill
from screen import Screen, delays, verdict
from watch import Death, Watch

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.epochs import BatchPart, batch_part

BARS = {"sent": "flights sent", "by-carrier": "committed, by carrier", "flights.lazy": "committed, by airport"}
PAUSE = 1.0
"""Seconds from a recovery to the next kill."""
SPARKS = 5.0
"""Seconds that Spark is given to be in the middle of the epoch."""
PATIENCE = 300.0
"""Seconds after which something that should happen is called failed."""


class Failed(Exception):
    """The demo cannot go on."""


class Demo:
    """One demonstration on a running Kafka."""

    def __init__(self, brokers: str, folder: Path, console: Console) -> None:
        self.brokers, self.frame = brokers, flights()
        self.run, self.watch = Run(brokers, folder), Watch(brokers)
        self.screen = Screen(console, self.frame.height, BARS)
        self.sent, self.stop = 0, threading.Event()

    def play(self, seconds: float) -> None:
        """Send the flights over `seconds`, kill what runs meanwhile, and finish."""
        make_topic(self.brokers)
        self.run.start()
        with self.screen.progress, ThreadPoolExecutor(1) as sender:
            self._until(lambda: len(self.run.workers()) == WORKERS, "the workers start")
            self.screen.say(f"falkirk run has {WORKERS} workers; the flights begin")
            known = self.frame.height // 10
            try:
                self._send(sender, 0, known, seconds / 10, lambda _: None)
                self._find_out()
                self._send(sender, known, self.frame.height, seconds * 9 / 10, self._kill_while)
            finally:
                self.stop.set()
            self._finish()

    def close(self) -> None:
        """End what was started."""
        self.watch.close()
        self.run.close()

    def _send(
        self, sender: Executor, start: int, end: int, seconds: float, meanwhile: Callable[[Callable[[], bool]], None]
    ) -> None:
        """Some of the flights, and what is done until they are sent."""

        def sent(count: int) -> None:
            self.sent = start + count

        sending = sender.submit(send, self.frame[start:end], self.brokers, seconds, sent, self.stop)
        meanwhile(lambda: not sending.done())
        self._until(sending.done, "the flights are sent")
        sending.result()

    def _find_out(self) -> None:
        """What is usual, from the first flights."""
        with self._usual() as usual:
            usual.ask("open")
            self._until(lambda: usual.look().state == "complete", "an epoch is complete")
            routes, read = usual.look().rows, usual.look().records
        self.screen.say(
            f"an epoch over {read:,} flights is complete: the stream looks up what is usual on {routes} routes"
        )

    def _kill_while(self, sending: Callable[[], bool]) -> None:
        """One kill after the other; each waits until every task has committed a step under its present owner."""
        whole = False
        while True:
            self._until(lambda: len(self.watch.at_work()) == WORKERS or not sending(), "both workers have tasks")
            self._rest(sending)
            if not sending():
                return
            if self.sent > self.frame.height / 2 and not whole:
                whole = True
                death = self.watch.killed("the whole run", worker=None)
                self.run.kill_everything()
                self.run.start()
            else:
                number = len(self.watch.deaths) % WORKERS
                self._until(lambda n=number: n in self.run.workers(), f"worker {number} runs")  # type: ignore[misc]
                death = self.watch.killed(f"worker {number}", worker=number)
                kill(self.run.workers()[number])
            self._until(lambda d=death: d.seconds is not None, f"{death.what} recovers")  # type: ignore[misc]
            self.screen.say(_sentence(death))

    def _rest(self, sending: Callable[[], bool], seconds: float = PAUSE) -> None:
        end = time.monotonic() + seconds
        self._until(lambda: time.monotonic() > end or not sending(), "a while passes")

    def _finish(self) -> None:
        if (code := self.run.leave()) != 0:
            raise Failed(f"falkirk run left with code {code}")
        self.screen.say("all sent; SIGTERM: the run left cleanly; falkirk run --until end")
        self.run.start("--until", "end")
        with self._usual() as usual:
            self._until(lambda: usual.look().state == "open", "an epoch is opened")
            opened = usual.look()
            self.screen.say(f"epoch {opened.epoch} of what is usual is open: Spark reads {opened.records:,} offsets")
            self._rest(lambda: True, SPARKS)
            if (driver := self.run.driver()) is not None:
                kill(driver)
                self.screen.say(
                    f"kill -9: the driver, and Spark with it; {usual.look().published} of {opened.partitions} published"
                )
            self._until(lambda: self.run.exit_code() is not None, "falkirk run --until end ends")
            self.screen.say(f"epoch {opened.epoch} is {usual.look().state}: {usual.look().rows:,} routes")
        if (code := self.run.wait(0)) != 0:
            raise Failed(f"falkirk run --until end ended with code {code}")
        self._until(lambda: self.watch.processed()["flights.lazy"] == self.sent, "the last steps are seen")

    def epochs(self) -> list[dict[int, int]]:
        """How many flights of each partition each complete epoch has read."""
        with self._usual() as usual:
            usual.look()
            return [{r.partition.partition: r.end for r in e.opened.division} for e in usual.epochs.kept]

    def _usual(self) -> AbstractContextManager[BatchPart]:
        return batch_part("flights", "usual", Settings(self.brokers, ""), Topics(Cluster(self.brokers)))

    def _until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait, and keep the screen up to date. Raises Failed after `PATIENCE` seconds, or when the run ends."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > deadline:
                raise Failed(f"waited {PATIENCE:.0f} s in vain until {what}")
            if self.run.exit_code() not in (None, 0):
                raise Failed(f"falkirk run ended with code {self.run.exit_code()}, while the demo waited until {what}")
            self.screen.show({"sent": self.sent, **self.watch.processed()})
            time.sleep(0.02)


def _sentence(death: Death) -> str:
    return f"kill -9: {death.what}; all {death.tasks} tasks committed again after [bold]{death.seconds:.2f} s[/]"


@click.command()
@click.option("--seconds", default=40.0, show_default=True, help="How long the sending takes.")
@click.option("--keep", is_flag=True, help="Keep the folder with Kafka's data, the state and the log of the run.")
def main(seconds: float, keep: bool) -> None:
    """Send the flights of 2013, kill workers on the way, and compare what comes out."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="falkirk-demo-"))
    try:
        with EmbeddedKafka(folder / "kafka", console=console) as kafka:
            demo = Demo(kafka.bootstrap, folder, console)
            try:
                demo.play(seconds)
                outputs = {topic: read_back(kafka.bootstrap, topic) for topic in OUTPUTS}
                epochs = demo.epochs()
            except Failed as error:
                console.print(f"[bold red]failed[/] {error}; the log of falkirk run ends with")
                console.print(_tail(demo.run.log), markup=False)
                sys.exit(1)
            finally:
                demo.close()
        findings = compare(demo.frame, outputs, epochs)
        delays(console, [record.value for record in outputs["delays-by-carrier"]])
        sys.exit(not verdict(console, findings, demo.watch.deaths, demo.frame.height))
    finally:
        if keep:
            console.print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:]) if log.exists() else ""


if __name__ == "__main__":
    main()
