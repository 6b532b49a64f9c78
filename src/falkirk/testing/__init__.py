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

import importlib
from typing import TYPE_CHECKING, Any

from falkirk.stream.producing import Record
from falkirk.testing.app import App
from falkirk.testing.records import Sink
from falkirk.testing.running import run

if TYPE_CHECKING:
    from falkirk.testing import strategies as strategies

__all__ = ["App", "Record", "Sink", "run"]


def __getattr__(name: str) -> Any:
    """Strategies are imported on first use: they need Hypothesis."""
    if name == "strategies":
        return importlib.import_module("falkirk.testing.strategies")
    raise AttributeError(f"falkirk.testing has no {name!r}")
