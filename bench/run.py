"""Measures Falkirk beside its peers, on a Kafka of its own: `make bench`, or `python bench/run.py --help`."""

from __future__ import annotations

import compileall
import json
import signal
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import click
import plot
import report
from rich.console import Console

from harness.broker import temporary
from harness.machine import facts
from harness.processes import BENCH, ROOT, Failed, Processes
from harness.setting import FULL_GROWN, FULL_STATES, QUICK, Screen, Setting, Sizes
from parts.nexmark.report import measured_again

PARTS = {
    **{
        part: f"parts.{part}"
        for part in ("throughput", "latency", "recovery", "restore", "memory", "spark", "epochs", "tasks")
    },
    "nexmark": "parts.nexmark.measurement",
}
"""What can be measured, and the module that does it."""


@click.command()
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Measure this part alone; may be repeated.")
@click.option("--quick", is_flag=True, help="Small sizes, one round: does it work at all?")
@click.option("--full", is_flag=True, help="Recovery up to 10,000,000 keys; memory with 10,000,000 records.")
@click.option("--records", type=int, help="Records of the throughput job.  [default: 2,000,000]")
@click.option("--keys", type=int, help="Keys of the throughput job.  [default: 10,000]")
@click.option("--rounds", type=int, help="Rounds of throughput and latency.  [default: 3]")
@click.option("--scanned", type=int, help="Records that Spark reads.  [default: 10,000,000]")
@click.option("--published", type=int, help="Rows that an epoch publishes.  [default: 1,000,000]")
@click.option("--events", type=int, help="Events of NexMark.  [default: 1,000,000]")
@click.option(
    "--queries",
    type=int,
    multiple=True,
    help="Measure this query of NexMark alone; may be repeated. The others stay as they were measured.",
)
@click.option("--peers/--no-peers", default=None, help="Whether NexMark's peers run too.  [default: they do]")
@click.option("--kills", type=int, help="Kills for each state measured.  [default: 10]")
@click.option(
    "--states", type=int, multiple=True, help="Keys in a recovered state; may be repeated.  [default: 10⁴, 10⁶]"
)
@click.option("--tasks", type=int, multiple=True, help="Tasks of a worker; may be repeated.  [default: 100, 1,000]")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=BENCH, help="Where results are written."
)
def main(
    only: tuple[str, ...], quick: bool, full: bool, states: tuple[int, ...], tasks: tuple[int, ...],
    queries: tuple[int, ...], out: Path,
    **given: int | None,
) -> None:  # fmt: skip
    """Measure, and write results/*.json, results/plot.svg and RESULTS.md."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sizes = QUICK if quick else Sizes()
    if full:
        sizes = replace(sizes, states=FULL_STATES, grown=FULL_GROWN)
    sizes = replace(sizes, states=states or sizes.states, tasks=tasks or sizes.tasks, queries=queries)
    sizes = replace(sizes, **{key: value for key, value in given.items() if value is not None})
    console, results = Console(), out / "results"
    earlier = json.loads(file.read_text()) if queries and (file := results / "nexmark.json").exists() else None
    if earlier and earlier["events"] != sizes.events:
        raise click.UsageError(f"the others were measured over other events: say --events {earlier['events']}")
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does: a start is mostly imports
    results.mkdir(parents=True, exist_ok=True)
    failed = False
    with temporary(console) as (kafka, folder), Processes(folder / "logs") as processes:
        setting = Setting(kafka, folder, processes, Screen(console), sizes)
        for part in only or PARTS:
            console.print(f"[bold]{part}[/]")
            setting.screen.warnings.clear()
            try:
                found = import_module(PARTS[part]).measure(setting)
            except Failed as error:
                failed = True
                console.print(f"  [bold red]failed[/] {error}", highlight=False, soft_wrap=True)
                continue
            finally:
                processes.end()
            record = {"machine": facts(ROOT), "sizes": asdict(sizes), "warnings": setting.screen.warnings, **found}
            if part == "nexmark" and earlier:
                record = measured_again(earlier, record)
            (results / f"{part}.json").write_text(json.dumps(record, indent=1) + "\n")
    if (trouble := plot.draw(results)) is not None:
        console.print(f"[yellow]no plot: {trouble}[/]")
    report.write(results, out / "RESULTS.md")
    console.print(f"{out / 'RESULTS.md'} and {results} tell the rest")
    sys.exit(failed)


if __name__ == "__main__":
    main()
