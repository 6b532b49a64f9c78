"""Tests of a flow without Kafka: `falkirk.testing.run` runs it in this process, step by step, with or without crashes.

>>> import falkirk as fk
>>> flow = fk.Flow("words")
>>> words = flow.source("words", key="word", value=fk.Json({"word": str}))
>>> words.group_by("word", id="counts").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
>>> result = fk.testing.run(flow, {"words": [{"word": "to"}, {"word": "be"}, {"word": "to"}]}, crash_at=[2])
>>> result.sinks["counts"].table
{'to': {'word': 'to', 'n': 2}, 'be': {'word': 'be', 'n': 1}}
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
