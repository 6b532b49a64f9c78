"""Tests of a flow without Kafka: `falkirk.testing.run` runs it in this process, step by step, with or without crashes.

>>> import falkirk as fk
>>> flow = fk.Flow("words")
>>> words = flow.source("words", key="word", value=fk.Json({"word": str}))
>>> words.group_by("word", id="counts").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
>>> result = fk.testing.run(flow, {"words": [{"word": "to"}, {"word": "be"}, {"word": "to"}]}, crash_at=[2])
>>> result.sinks["counts"].table
{'to': {'word': 'to', 'n': 2}, 'be': {'word': 'be', 'n': 1}}

What users call:
    running.py       `falkirk.testing.run`
    app.py           App: a flow under test, one step after another
    looking.py       what an App shows: its sinks, dead letters, state and calls
    records.py       Sink: all that a sink has written
    strategies.py    Hypothesis strategies for the inputs of a flow
    registry.py      a schema registry in this process
    real.py          the same on a real Kafka, for the fixture `falkirk_run`

What an App is made of:
    process.py       a worker process, and how it dies
    dying.py         one step during which the worker is killed at each point
    cluster.py       what outlives the worker: a simulated cluster, and a disk
    edges.py         the worker's inputs, from that cluster
    replays.py       recorded steps, run again
    epochs.py        the epochs of batch parts
    outlets.py       what sinks outside Kafka would write
    dates.py         the clock of a test, and a warning of rows with a later date

Without the protocol, for tests of operators:
    memory.py        only the circuits of a flow, over topics that are lists
    batch.py         an epoch, cut anywhere

simulator/           the simulated world that tests the step protocol itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falkirk.stream.access.producing import Record
from falkirk.testing.app import App
from falkirk.testing.records import Sink
from falkirk.testing.running import run

__all__ = ["App", "Record", "Sink", "run"]

if TYPE_CHECKING:
    from falkirk.testing import strategies as strategies
else:
    # Not for type checkers: to them this function says that every name exists.
    def __getattr__(name: str) -> object:
        """Import the strategies on first use: they need Hypothesis."""
        if name == "strategies":
            from importlib import import_module

            return import_module("falkirk.testing.strategies")
        raise AttributeError(f"falkirk.testing has no {name!r}: see dir(falkirk.testing) for what it has")


def __dir__() -> list[str]:
    return sorted([*__all__, "strategies"])
