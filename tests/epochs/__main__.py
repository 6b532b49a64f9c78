"""Epochs under harm, for as long as one likes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from tests.epochs.trial import Trial


@click.command()
@click.option("--epochs", default=100, show_default=True, help="How many are to be completed.")
@click.option("--seed", default=7, show_default=True, help="Decides load and harm.")
@click.option("--rate", default=300, show_default=True, help="Records a second of the load.")
@click.option("--folder", type=click.Path(path_type=Path), help="For logs and state; kept.")
def main(epochs: int, seed: int, rate: int, folder: Path | None) -> None:
    """Run batch parts, kill everything they consist of again and again, and check every record that comes out. Ctrl-C: no
    more kills, the verdict."""
    folder = folder or Path(tempfile.mkdtemp(prefix="falkirk-epochs-"))
    trial = Trial(folder, epochs=epochs, seed=seed, rate=rate, show=click.echo)
    wrong = trial.go()
    click.echo(
        f"{sum(trial.complete.values())} epochs, {trial.records:,} records, killed: {dict(trial.harmed)}; longest time "
        f"between two epochs {trial.longest:.0f} s"
    )
    for line in wrong:
        click.secho(line, fg="red")
    click.echo("all exact" if not wrong else f"evidence in {folder}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
