"""Falkirk: exactly-once stream processing on Kafka, with batch on Spark.

>>> import falkirk as fk
>>> flow = fk.Flow("auction-stats", regime=fk.EagerCheckpoint(step="100ms"))
>>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
>>> stats = bids.filter(fk.col("price") > 100).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
>>> stats.sink("auction-stats", key="auction", value=fk.Json())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from falkirk import testing as testing
    from falkirk._face import *  # noqa: F403

_MODULES = frozenset({"testing"})


def __getattr__(name: str) -> Any:
    """Import what is offered when it is first asked for: `falkirk --help` needs neither Polars nor Kafka's client."""
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _MODULES:
        return importlib.import_module(f"falkirk.{name}")
    import falkirk._face as face

    if name not in face.__all__:
        raise AttributeError(f"falkirk has no {name!r}: see dir(falkirk) for what it has")
    value = globals()[name] = getattr(face, name)
    return value


def __dir__() -> list[str]:
    import falkirk._face as face

    return sorted({*face.__all__, *_MODULES})
