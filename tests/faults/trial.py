"""python -m tests.faults.trial --faults 10000 --seed 7"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import click
from tests.faults.behind import FAULTS_A_KILL, Epochs, Streams
from tests.soak.check.findings import Kind
from tests.soak.progress import Progress
from tests.soak.soak import Config

SHARES = {"eager": 0.3, "lazy": 0.3, "mixed": 0.2, "batch": 0.2}
"""How many of all faults each regime gets. mixed: eager and lazy parts side by side, with exchanges and timers."""
WORKERS = 4
"""As many as tasks: each has transactions of its own."""
PATIENCE_S = 300.0
"""How long a task may put out nothing: what is never answered is waited for, and workers are killed besides."""
EVERY_S = 10.0
"""Seconds between two lines."""

Faults = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one regime."""

    faults: Faults
    """By API and kind."""
    harms: Mapping[str, int]
    records: int
    """Checked."""
    seconds: float
    wrong: list[str]
    counts: str

    def __str__(self) -> str:
        harms = ", ".join(f"{harm} {count}" for harm, count in sorted(self.harms.items())) or "nothing"
        words = f"{self.faults.total()} faults in {self.seconds:.0f} s; killed or paused: {harms}"
        return f"{words}; {self.records:,} records checked: {self.counts}"


class Lines:
    """A line now and then."""

    def __init__(self, regime: str, faults: int, show: Callable[[str], object]) -> None:
        self.regime, self.faults, self.show = regime, faults, show
        self.began, self.at = time.monotonic(), 0.0

    def __call__(self, faults: Faults, more: str) -> None:
        """Show how far a run is, if that was not shown just now."""
        if time.monotonic() - self.at >= EVERY_S:
            self.at = time.monotonic()
            self.show(f"{self.at - self.began:6.0f} s  {self.regime}: {shortly(faults)} of {self.faults}; {more}")


def shortly(faults: Faults) -> str:
    """Faults by API and by kind, in a line.

    >>> shortly(Counter({("EndTxn", "request: drop + reset"): 2, ("Produce", "response: drop + reset"): 1}))
    '3 faults (EndTxn 2, Produce 1; drop 3)'
    """
    apis: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for (api, fault), count in faults.items():
        apis[api] += count
        kinds[fault.partition(": ")[2].split()[0]] += count
    both = "; ".join(", ".join(f"{name} {n}" for name, n in by.most_common()) for by in (apis, kinds))
    return f"{faults.total():,} faults{f' ({both})' if faults else ''}"


def table(faults: Faults) -> str:
    """Faults by kind, and for each by API.

    >>> print(table(Counter({("EndTxn", "request: duplicate"): 2, ("Produce", "request: duplicate"): 1})))
                                                   EndTxn      Produce        total
    request: duplicate                                  2            1            3
    total                                               2            1            3
    """
    apis, kinds = sorted({api for api, _ in faults}), sorted({kind for _, kind in faults})
    rows = [(kind, [faults[api, kind] for api in apis]) for kind in kinds]
    rows.append(("total", [sum(faults[api, kind] for kind in kinds) for api in apis]))
    width = max(12, *map(len, apis)) if apis else 12
    lines = [" " * 40 + "".join(f"{name:>{width + 1}}" for name in (*apis, "total"))]
    lines += [f"{kind:40}" + "".join(f"{n:>{width + 1}}" for n in (*counts, sum(counts))) for kind, counts in rows]
    return "\n".join(lines)


def stream(
    regime: str, faults: int, seed: int, folder: Path, show: Callable[[str], object], rate: int = 200
) -> Outcome:
    """A flow of tests/soak behind the proxy. Ctrl-C: no more faults, the verdict."""
    lines = Lines(regime, faults, show)

    def progress(now: Progress) -> None:
        wrong = ", ".join(f"{kind} {count}" for kind, count in now.counts.items() if count) or "all exact"
        harmed = f"{now.kills.total()} kills and pauses"
        lines(streams.suffered, f"{harmed}; {now.records:,} records checked: {wrong}  ({now.doing})")

    kills = max(1, faults // FAULTS_A_KILL)
    streams = Streams(Config(kills, seed, folder, regime, rate, WORKERS, patience_s=PATIENCE_S), faults, progress)

    def stop(_number: int, _frame: FrameType | None) -> None:
        streams.stopping = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        report = streams.go()
    finally:
        signal.signal(signal.SIGINT, before)
    wrong = report["found"] or ([] if report["exact"] else ["there was no verdict"])
    counts = ", ".join(f"{report['counts'].get(kind, 0)} {kind.replace('_', ' ')}" for kind in Kind)
    return Outcome(streams.suffered, report["harms"], report["records"], report["seconds"], wrong, counts)


def batch(faults: int, seed: int, folder: Path, show: Callable[[str], object], rate: int = 300) -> Outcome:
    """The batch parts of tests/epochs behind the proxy. Ctrl-C: the same."""
    began = time.monotonic()
    kills = max(1, faults // FAULTS_A_KILL)
    epochs = Epochs(folder, epochs=1, seed=seed, kills=kills, rate=rate, faults=faults)
    epochs.show = lambda words: show(f"batch: {shortly(epochs.suffered)} of {faults}; {words}")
    wrong = epochs.go()
    more = f"{sum(epochs.complete.values())} epochs, {epochs.publishing} faults under their slices"
    return Outcome(epochs.suffered, dict(epochs.harmed), epochs.records, time.monotonic() - began, wrong, more)


@click.command()
@click.option("--faults", default=10_000, show_default=True, help="How many are injected.")
@click.option("--seed", default=7, show_default=True, help="Decides faults, kills and load.")
@click.option(
    "--regime",
    type=click.Choice([*SHARES, "all"]),
    default="all",
    show_default=True,
    help="all: one after another, each with a share of the faults.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="For logs, state and faults.jsonl.")
def main(faults: int, seed: int, regime: str, folder: Path | None) -> None:
    """Run flows behind a proxy that injects faults, kill workers on the way, and check every record that comes out.
    Ctrl-C: no more faults in this regime, the verdict."""
    folder = folder or Path(".build", "faults", time.strftime(f"%Y%m%d-%H%M%S-seed{seed}", time.gmtime()))
    click.echo(f"faults with seed {seed}; evidence in {folder}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what runs in the background ignore it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # it has processes to end
    shares = {regime: 1.0} if regime != "all" else SHARES
    total: Faults = Counter()
    found = False
    for name, share in shares.items():
        trial = batch if name == "batch" else partial(stream, name)
        outcome = trial(round(faults * share), seed, folder / name, show=say)
        say(f"{name}: {outcome}")
        for words in outcome.wrong:
            click.secho(f"  {words}", fg="red")
        total += outcome.faults
        found |= bool(outcome.wrong)
    say(table(total))
    say(f"NOT exact: see {folder}" if found else "exact")
    sys.exit(found)


def say(words: str) -> None:
    """A line, at once, even into a file."""
    click.echo(words)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
