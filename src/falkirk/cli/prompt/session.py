"""What each statement at the prompt does."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from falkirk.cli.prompt.apps import PARTITIONS, Apps, RunningApp
from falkirk.cli.prompt.results import Results, aligned
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.app.sources import create_missing_sources
from falkirk.runtime.inspect.sending import Sender
from falkirk.stream.flow.explain import explain
from falkirk.stream.sql.catalog import Catalog, Entry, Job, kind_of
from falkirk.wording import counted

HELP = """\
create table bids (auction bigint, price bigint, at timestamp)
    with (topic='bids', key='auction');         a topic as a table; without options, of the table's name, as JSON
create table tops (auction bigint, top bigint)
    with (key='auction', changes='upsert');     a topic with the last row of each key
create view high as select … from bids;         a query under a name
create table t as select …;                     a query whose rows are written to a topic, from now on
insert into t values (1, 120, '2026-01-31');    rows to try a query with
insert into t select …;                         the same as create table as, into a table that exists
select … from bids …;                           the result, which follows its input, until Ctrl-C
explain select …;                               its operators
show tables; show jobs; describe t;             what there is
drop table t; drop view v; stop NAME;           forgets a table (its topic stays) or view; stops an insert into
help; quit;                                     Ctrl-C drops a line, Ctrl-D quits, too
"""

REDRAWN_S = 0.2
"""Seconds from one picture of a result to the next."""

_FOOT = 3
"""Lines of the screen that are not rows."""


class Session:
    """A catalog, and the queries that run."""

    def __init__(self, apps: Apps, catalog: Catalog, screen: Console, save: Callable[[], None]) -> None:
        """`save` keeps the catalog for the next session."""
        self.apps, self.catalog, self.screen, self._save = apps, catalog, screen, save
        self.jobs: dict[str, RunningApp] = {}
        self._token, self._number = secrets.token_hex(3), 0

    def run(self, statement: str) -> bool:
        """One statement; False: the session ends. Raises FalkirkError."""
        word, rest = [*statement.strip().rstrip(";").split(maxsplit=1), "", ""][:2]
        word, rest = word.lower(), rest.strip()
        match word:
            case "quit" | "exit" | "\\q":
                return False
            case "help" | "?":
                click.echo(HELP, nl=False)
            case "show":
                self._show(rest.lower())
            case "describe" | "desc":
                self._describe(rest)
            case "stop":
                self._stop(rest)
            case "explain":
                place = statement.lower().index("explain")
                click.echo(
                    explain(self.catalog.explained(statement[:place] + " " * len("explain") + statement[place + 7 :]))
                )
            case _:
                self._statement(statement)
        return True

    def close(self) -> None:
        """Stop all queries, and delete what they had."""
        for name in list(self.jobs):
            self._end(self.jobs.pop(name))

    def _statement(self, sql: str) -> None:
        match kind_of(sql):
            case "select":
                self._select(self.catalog.select(sql, self._name()))
            case "values":
                self._values(sql)
            case "insert":
                self._insert(self.catalog.insert(sql, self._name()))
            case "create":
                entry = self.catalog.create(sql)
                self._save()
                click.echo(f"{entry.kind} {entry.name} created")
            case "create as":
                entry, job = self.catalog.create_as(sql, self._name())
                self._save()
                click.echo(f"table {entry.name} created")
                self._insert(job)
            case "drop":
                entry = self.catalog.drop(sql)
                self._save()
                click.echo(
                    f"{entry.kind} {entry.name} forgotten" + ("" if entry.kind == "view" else "; its topic stays")
                )
            case _:
                raise ConfigError("this statement does nothing at the prompt", hint="help shows what there is")

    def _name(self) -> str:
        self._number += 1
        return f"sql-{self._token}-{self._number}"

    def _select(self, job: Job) -> None:
        live = self.screen.is_terminal
        app = self.apps.start(job, until_end=not live)
        results = Results(job.schema, job.order)
        try:
            if live:
                self._follow(app, results)
            else:
                app.wait()
                for rows in self.apps.rows(app, follow=False):
                    results.take([row.values for row in rows if row.values is not None])
                click.echo("\n".join(results.lines()))
        finally:
            self._end(app)

    def _follow(self, app: RunningApp, results: Results) -> None:
        """Show the result as it changes, until Ctrl-C."""
        with Live(
            Text("starting; rows are shown as they come …", "dim"), console=self.screen, auto_refresh=False
        ) as shown:
            drawn, at = 0, 0.0
            try:
                for rows in self.apps.rows(app, follow=True):
                    app.check()
                    results.take([row.values for row in rows if row.values is not None])
                    if results.changes > drawn and time.monotonic() - at > REDRAWN_S:
                        shown.update(self._table(results, "Ctrl-C ends"), refresh=True)
                        drawn, at = results.changes, time.monotonic()
            except KeyboardInterrupt:
                shown.update(self._table(results, "stopped"), refresh=True)

    def _table(self, results: Results, note: str) -> Text:
        width, height = self.screen.size
        head, *rows = results.lines(max(1, height - _FOOT - 2), width)
        table = Text(head + "\n", "bold", no_wrap=True, overflow="crop")
        table.append("\n".join(rows), "not bold")
        table.append(f" · {counted(results.changes, 'change')} · {note}", "not bold dim")
        return table

    def _values(self, sql: str) -> None:
        entry, rows = self.catalog.values(sql)
        plan = self.catalog.reader(entry.name).plan(self.apps.settings.prefix)
        create_missing_sources(plan, self.apps.topics, PARTITIONS)
        sender = Sender(plan, entry.name, self.apps.settings, self.apps.topics)
        sender.send_frame(rows)
        sender.settle()
        click.echo(f"{counted(rows.height, 'row')} inserted")

    def _insert(self, job: Job) -> None:
        live = self.screen.is_terminal
        app = self.apps.start(job, until_end=not live)
        if live:
            self.jobs[job.name] = app
            click.echo(f"{job.name} runs, and writes to {job.into}: stop {job.name} ends it")
            return
        try:
            app.wait()
            click.echo(f"rows inserted into {job.into}")
        finally:
            self._end(app)

    def _end(self, app: RunningApp) -> None:
        app.stop()
        try:
            if self.apps.unread(app):
                click.echo("some records of its tables could not be read as rows, and are left out", err=True)
            self.apps.remove(app)
        except FalkirkError as error:
            click.echo(f"{app.job.name} is stopped, and its topics stay: {error.what}", err=True)

    def _show(self, what: str) -> None:
        if what == "tables":
            rows = [
                [e.name, e.kind, e.topic if e.kind == "table" else "", _told(e)] for e in self.catalog.entries.values()
            ]
            head = ["name", "kind", "topic", "options"]
        elif what == "jobs":
            rows = [[n, app.job.into, _state(app)] for n, app in self.jobs.items()]
            head = ["name", "into", "state"]
        else:
            raise ConfigError(f"show {what} is not known", hint="show tables, or show jobs")
        click.echo("\n".join(aligned(head, rows, [False] * len(head))))

    def _describe(self, name: str) -> None:
        rows = [[column, kind] for column, kind in self.catalog.described(name.strip('"'))]
        click.echo("\n".join(aligned(["column", "type"], rows, [False, False])))

    def _stop(self, name: str) -> None:
        if name not in self.jobs:
            raise ConfigError(f"there is no job {name!r}", hint=f"there are: {', '.join(self.jobs) or 'none'}")
        self._end(self.jobs.pop(name))
        click.echo(f"{name} stopped")


def _told(entry: Entry) -> str:
    return ", ".join(f"{name}={value}" for name, value in entry.options.items() if name != "topic")


def _state(app: RunningApp) -> str:
    try:
        app.check()
    except FalkirkError as error:
        return error.what.splitlines()[0]
    return "running"
