"""The outlets of an app's sinks outside Kafka, made from the flow and the settings of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falkirk.checkpoint.outlets import Outlet
from falkirk.connectors.delta import tables as delta
from falkirk.connectors.delta.client import TablePlace
from falkirk.connectors.delta.outlet import DeltaOutlet
from falkirk.connectors.files.parquet import ParquetOutlet
from falkirk.connectors.files.places import place_at
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.postgres.client import Database
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.connectors.postgres.tables import Tables
from falkirk.errors import AwayError, ConfigError
from falkirk.runtime.app.app import App
from falkirk.stream.dataflow.topics import Output
from falkirk.stream.definition.outlets import DeltaPlan, FilesPlan, TablePlan

Databases = Mapping[str, str]
"""Addresses by name."""


def outlet_of(app: App, output: Output, databases: Databases) -> Outlet[Any]:
    """The outlet of a sink. Raises ConfigError."""
    topic_id = app.topics[output.topic].id
    match output.outlet:
        case FilesPlan() as plan:
            return ParquetOutlet(place_at(plan.url), app.name, output.id, topic_id)
        case TablePlan() as plan:
            return PostgresOutlet(_database(plan, databases, app.name), plan, app.name, output.id, topic_id)
        case DeltaPlan() as plan:
            return DeltaOutlet(TablePlace(plan.url), plan, app.name, output.id, topic_id)
    raise AssertionError(output)


def meet_tables(app: App, databases: Databases) -> None:
    """Create the tables of the app's sinks, or compare those that exist. A database or bucket that is away keeps nothing from
    starting: the rows wait in Kafka. Raises ConfigError. Any process may repeat it."""
    outputs = (output for bound in app.tasks for output in bound.stage.outputs if output.outlet is not None)
    for output in {output.id: output for output in outputs}.values():
        try:
            _meet(app, output, databases)
        except AwayError as error:
            logger.warning("sink %s cannot write: %s; the app starts, and its rows wait in Kafka", output.id, error.what,
                           extra={"where": error.where, "hint": error.hint})  # fmt: skip


def _meet(app: App, output: Output, databases: Databases) -> None:
    match output.outlet:
        case TablePlan() as plan:
            tables = Tables(_database(plan, databases, app.name), plan)
            try:
                tables.prepare(app.name, output.id, app.topics[output.topic].id)
            finally:
                tables.database.close()
        case DeltaPlan() as plan:
            # It is created with the first rows: only the log tells a table that is gone from one that never was.
            delta.Tables(TablePlace(plan.url), plan).compare()


def try_out(app: str, output: Output, databases: Databases) -> str:
    """Whether a sink could write, in words. Nothing that is made stays. Raises AwayError and ConfigError."""
    match output.outlet:
        case FilesPlan() as plan:
            place_at(plan.url).try_out()
            return f"{plan.url}, a file written once and deleted"
        case TablePlan() as plan:
            tables = Tables(_database(plan, databases, app), plan)
            try:
                return tables.check()
            finally:
                tables.database.close()
        case DeltaPlan() as plan:
            place = TablePlace(plan.url)
            if place.folder is None:
                place_at(plan.url).try_out()
            return delta.Tables(place, plan).check()
    raise AssertionError(output)


def _database(plan: TablePlan, databases: Databases, app: str) -> Database:
    if plan.database not in databases:
        variable = f"FALKIRK_DATABASE_{plan.database.upper().replace('-', '_')}_URL"
        raise ConfigError(
            f"database {plan.database!r} has no address",
            where=f"table {plan.table}",
            hint=f'set {variable}; or write url = {{env = "NAME"}} or url = {{file = "PATH"}} below '
            f"[database.{plan.database}] in falkirk.toml",
        )
    return Database(plan.database, databases[plan.database], app)
