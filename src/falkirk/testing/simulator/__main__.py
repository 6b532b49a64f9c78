"""The simulator from a shell.

python -m falkirk.testing.simulator --weaken all             what breaks when a clause is missing
python -m falkirk.testing.simulator --weaken no-fence        … one of them, with the trace of the run
python -m falkirk.testing.simulator --seeds 0:10000          look for a run that breaks the protocol itself
"""

from __future__ import annotations

import sys
from functools import partial
from textwrap import shorten

import click

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.testing.simulator.explore import attempt, sample, smallest
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.weakened.weaken import WEAKENINGS, broken, search


def explore(seed: int) -> str:
    """One sampled run of the real protocol: what broke, with the smallest plan and its trace; empty if nothing did."""
    tasks, domains = 1 + seed % 3, 1 + seed // 6 % 2
    make = partial(Toy, tasks=tasks, recovery=(Lazy, Eager)[seed % 2], inputs=2 + seed % 4, domains=domains)
    workers = 2 + seed % 5 // 3
    failure = attempt(make, sample(seed, workers=workers), workers, seed, rate=(0.0, 0.1, 0.4)[seed % 3])
    return "" if failure is None else f"seed {seed}, {make()}, {workers} workers: {smallest(make, failure, workers)}"


def table() -> str:
    """Every weakening with what its schedule breaks, in Markdown."""
    lines = ["| lacks | | faults | breaks |", "|---|---|---|---|"]
    for name, weakening in WEAKENINGS.items():
        failure, faults = broken(name), len(weakening.breaks.plan.faults)
        what = "HOLDS" if failure is None else shorten(failure.what, 90, placeholder=" …")
        lacks = " + ".join((name, *weakening.lacks_too))
        lines.append(f"| {lacks} | {weakening.text} | {faults} | {what} |")
    return "\n".join(lines)


@click.command()
@click.option("--weaken", metavar="NAME", help="'all', or one of: " + ", ".join(WEAKENINGS))
@click.option("--seeds", metavar="FROM:TO", help="Sample runs of these seeds; with --weaken NAME, of that weakening.")
def main(weaken: str | None, seeds: str | None) -> None:
    """Run the step protocol in a simulated world."""
    drawn = range(*map(int, seeds.split(":"))) if seeds else range(0)
    if weaken == "all":
        click.echo(table())
    elif weaken is not None and drawn:
        found = search(weaken, drawn)
        click.echo("nothing found" if found is None else f"{found.toy}\n{found.plan}")
    elif weaken is not None:
        click.echo(str(broken(weaken)))
    else:
        for seed in drawn:
            if found_broken := explore(seed):
                click.echo(found_broken)
                sys.exit(1)


if __name__ == "__main__":
    main()
