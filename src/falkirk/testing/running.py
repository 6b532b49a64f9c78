"""`falkirk.testing.run`: a flow over some input, with or without crashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Literal

from falkirk.errors import ConfigError
from falkirk.stream.access.producing import Rows
from falkirk.stream.flow.flow import Flow
from falkirk.testing.app import App
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending
from falkirk.testing.records import Sink
from falkirk.wording import counted

STEPS = 10
"""This many steps take in the input, or one per record if there are fewer."""


def run(
    flow: Flow,
    inputs: Mapping[str, Rows],
    *,
    crash_at: Collection[int] | Literal["everywhere"] = (),
    step_rows: int | None = None,
    partitions: int | Mapping[str, int] = 1,
    now: datetime | None = None,
) -> App:
    """Run a flow over some input, without Kafka, until nothing is left to do. Returns the app, for its sinks and
    state.

    `inputs` are the rows of each source and table (see `App.send`). About ten steps read them; with `step_rows`, each
    reads so many records of each partition. `partitions` and `now` are as for `App`.

    `crash_at` are the steps, numbered from 1, or "everywhere", at which the worker is killed at each point; see
    docs/how-to/test-a-flow.md. Raises AssertionError if sinks then hold anything else, ConfigError for a step that does not
    exist, and what stops a worker.

    >>> import falkirk as fk
    >>> flow = fk.Flow("auction-stats")
    >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
    >>> stats.sink("stats", key="auction", value=fk.Json())
    >>> rows = [{"auction": 7, "price": 120}, {"auction": 8, "price": 90}, {"auction": 7, "price": 200}]
    >>> fk.testing.run(flow, {"bids": rows}, crash_at=[3]).sinks["stats"].table
    {7: {'auction': 7, 'n': 2, 'top': 200}, 8: {'auction': 8, 'n': 1, 'top': 90}}
    """
    _check(inputs, crash_at)
    calm = _run(flow, inputs, step_rows, partitions, now)
    steps = range(1, calm.steps + 1) if crash_at == "everywhere" else crash_at
    if late := [n for n in steps if not 1 <= int(n) <= calm.steps]:
        raise ConfigError(
            f"there is no step {late[0]} to crash at: the run has steps 1 to {calm.steps}",
            hint="send more, or let each step take less: step_rows=1",
        )
    app = calm
    for ending in Ending if steps else ():
        app = _run(flow, inputs, step_rows, partitions, now, frozenset(map(int, steps)), ending)
        _compare(calm, app, ending)
    return app


def _check(inputs: object, crash_at: object) -> None:
    if not isinstance(inputs, Mapping):
        raise ConfigError(
            f"inputs are a dict, not {inputs!r:.60}", hint='for each source its rows: {"bids": [{…}, {…}]}'
        )
    steps = crash_at if isinstance(crash_at, Collection) and not isinstance(crash_at, str) else [crash_at]
    if crash_at != "everywhere" and not all(isinstance(step, int) for step in steps):
        raise ConfigError(
            f"crash_at={crash_at!r} does not name steps", hint='crash_at=[1, 3], or crash_at="everywhere"'
        )
    if isinstance(crash_at, int):
        raise ConfigError(f"crash_at={crash_at} is no list of steps", hint=f"crash_at=[{crash_at}]")


def _run(
    flow: Flow,
    inputs: Mapping[str, Rows],
    step_rows: int | None,
    partitions: int | Mapping[str, int],
    now: datetime | None,
    crash_at: Collection[int] = (),
    ending: Ending = Ending.UNSEEN,
) -> App:
    app = App(flow, partitions=partitions, step_rows=step_rows, topics=inputs.keys(), now=now)
    for name, rows in inputs.items():
        app.send(name, rows)
    app.step_rows = step_rows or max(1, -(-app.waiting // STEPS))
    going = True
    while going:
        crashed = app.steps + 1 in crash_at
        going = step_dying(app, ending, before=ending is Ending.UNSEEN) if crashed else app.step()
    app.run_epochs()
    return app


def _compare(calm: App, crashed: App, ending: Ending) -> None:
    for name, due in calm.sinks.items():
        found = crashed.sinks[name]
        if difference := _difference(due, found):
            raise AssertionError(
                f"sink {name!r} holds something else after crashes (where {ending.value}): {difference}\n"
                "what the functions of the flow give must depend on their rows, their state and key.now() alone"
            )
    assert calm.dead_letters == crashed.dead_letters


def _difference(due: Sink, found: Sink) -> str:
    told = [[(r.key, r.value, r.timestamp, r.headers) for r in sink.records] for sink in (due, found)]
    for i, (a, b) in enumerate(zip(*told, strict=False)):
        if a != b and repr(a) != repr(b):  # NaN does not equal itself
            return f"record {i} is {b}, and was {a} without them"
    return "" if len(told[0]) == len(told[1]) else f"{counted(len(told[1]), 'record')}, and {len(told[0])} without them"
