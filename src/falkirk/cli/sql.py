"""`falkirk sql`: runs a file of SQL as an app."""

from __future__ import annotations

from typing import Any

import click

from falkirk.cli.legend import LIVE
from falkirk.cli.options import http_option, sql_options, traces_option, until_option, workers_option
from falkirk.cli.run import dev, run
from falkirk.errors import ConfigError


@click.command(epilog=LIVE)
@sql_options
@workers_option
@until_option
@http_option
@traces_option
@click.option("--dev", "own_kafka", is_flag=True, help="Run on an embedded Kafka that starts and stops with it.")
def sql(target: str, own_kafka: bool, **options: Any) -> None:
    """Run a file of SQL on a Kafka cluster, as falkirk run runs a flow: the same guarantees, options and commands.

    The app is named after the file. Other commands take the file in place of APP:FLOW: falkirk explain shop.sql.

    \b
    -- shop.sql
    create table orders (customer varchar, region varchar, usd bigint)
        with (topic='orders', format='json', key='customer');
    create view paid as select * from orders where usd > 0;
    insert into totals select region, count(*) as n, sum(usd) as usd from paid group by region;

    \b
    falkirk sql --file shop.sql --dev
    falkirk sql --file shop.sql --brokers broker-1:9092 --workers 4 --state-dir /var/lib/shop
    """
    if not target.endswith(".sql"):
        raise ConfigError(f"{target!r} is no file of SQL", where="--file", hint="its name ends in .sql")
    command = dev if own_kafka else run
    assert command.callback is not None
    command.callback(target=target, **options, **({} if own_kafka else {"place": None}))
