"""python -m tests.faults 127.0.0.1:9092 --seed 7 --rate EndTxn=0.1 --rate Produce=0.02"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import click
from tests.faults.faults import Plan
from tests.faults.frames import named
from tests.faults.journal import Journal
from tests.faults.proxy import Proxy


@click.command()
@click.argument("brokers")
@click.option("--seed", default=7, show_default=True, help="Decides the faults.")
@click.option(
    "--rate", "rates", multiple=True, metavar="API=SHARE", help="How many of an API's requests suffer a fault."
)
@click.option("--journal", type=click.Path(path_type=Path), help="A file for what happened, as JSON a line.")
@click.option("--quiet", is_flag=True, help="Do not print what happened at the end.")
def main(brokers: str, seed: int, rates: tuple[str, ...], journal: Path | None, quiet: bool) -> None:
    """Be a proxy before BROKERS (HOST:PORT,…), until Ctrl-C. Prints the addresses that clients are to use."""
    shares: dict[int, float] = {named(api): float(share) for api, _, share in (rate.partition("=") for rate in rates)}
    with Proxy(brokers, Plan(seed, shares), Journal(f"seed {seed}", journal)) as proxy:
        click.echo(proxy.address)
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    if not quiet:
        click.echo(str(proxy.journal), err=True)
    for (api, fault), count in sorted(proxy.journal.faults.items()):
        click.echo(f"{count:6}  {api:18} {fault}", err=True)


if __name__ == "__main__":
    main()
