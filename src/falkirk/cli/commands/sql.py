"""`falkirk sql`: runs a file of SQL as an app, or a prompt."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from falkirk.cli.commands.run import dev, run
from falkirk.cli.legend import LIVE
from falkirk.cli.options import http_option, query_options, sql_options, traces_option, until_option, workers_option
from falkirk.errors import ConfigError


@click.command(epilog=LIVE)
@click.argument("place", metavar="[FILE.sql]", required=False, default="")
@sql_options
@workers_option
@until_option
@http_option
@query_options
@traces_option
@click.option("--dev", "own_kafka", is_flag=True, help="Run on an embedded Kafka that starts and stops with it.")
@click.option("--tables", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.toml", help="Tables for the prompt: "
              '[bids], with columns = {price = "bigint"} and the options of create table.')  # fmt: skip
def sql(place: str, target: str, own_kafka: bool, tables: Path | None, **options: Any) -> None:
    """Run a file of SQL on a Kafka cluster, as falkirk run runs a flow: the same guarantees, options and commands.

    With --dev and without a file, it is a prompt on an embedded Kafka. A select shows its result and follows its input,
    until Ctrl-C. help lists the statements. Statements from a pipe run one after another, each to the end of its input.

    The app is named after the file. Other commands take the file in place of APP:FLOW: falkirk explain shop.sql.

    \b
    -- shop.sql
    create table orders (customer varchar, region varchar, usd bigint)
        with (topic='orders', format='json', key='customer');
    create view paid as select * from orders where usd > 0;
    insert into totals select region, count(*) as n, sum(usd) as usd from paid group by region;

    \b
    falkirk sql --dev
    falkirk sql shop.sql --dev
    falkirk sql shop.sql --brokers broker-1:9092 --workers 4 --state-dir /var/lib/shop
    """
    if place and target:
        raise ConfigError("there are two files", where=f"{place} and --file {target}", hint="give one")
    target = target or place
    if not target:
        _prompt(tables, own_kafka, options)
        return
    if tables is not None:
        raise ConfigError("--tables is for the prompt", hint="write create table into the file, or leave out --file")
    if not target.endswith(".sql"):
        raise ConfigError(f"{target!r} is no file of SQL", hint="its name ends in .sql")
    command = dev if own_kafka else run
    assert command.callback is not None
    command.callback(target=target, **options, **({} if own_kafka else {"place": None}))


def _prompt(tables: Path | None, own_kafka: bool, options: dict[str, Any]) -> None:
    if not own_kafka:
        raise ConfigError("no file given", hint="name a FILE.sql; or --dev for a prompt on an embedded Kafka")
    if not find_spec("sqlglot"):
        raise ConfigError("SQL needs its parser", hint="pip install 'falkirk[sql]'")
    from falkirk.cli.prompt.loop import prompt

    for other in ("workers", "until"):
        options.pop(other)
    if not prompt(tables, options) and not sys.stdin.isatty():
        sys.exit(1)
