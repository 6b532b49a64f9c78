"""The flows that are tormented: `falkirk run tests/soak/flows.py:NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import falkirk as fk

BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}
# Versions are made often, so that many kills find one half made and few steps are left to be run again; not so often
# that logs are trimmed before the reader, on a machine that is starting a broker, has read them.
EAGER = fk.EagerCheckpoint(step="100ms", every="20s")
LAZY = fk.LazyCheckpoint(step="100ms", every="15s")
QUIET = timedelta(milliseconds=300)


class Auction(fk.Process):
    """Who leads, and when an auction has gone quiet: then it is closed, and a later bid opens it again."""

    state: ClassVar[dict[str, Any]] = {"n": fk.Int64, "top": fk.Int64, "leader": fk.Int64}
    returns: ClassVar[dict[str, Any]] = {"auction": fk.Int64, "event": fk.String, "n": fk.Int64, "leader": fk.Int64}

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        """A bid: tell of a new leader."""
        known = key.get() or {"n": 0, "top": -1, "leader": -1}
        known["n"] += 1
        if row["price"] > known["top"]:
            known["top"], known["leader"] = row["price"], row["bidder"]
            yield {"auction": row["auction"], "event": "leads", "n": known["n"], "leader": known["leader"]}
        key.put(known)
        key.set_timer(QUIET, "quiet")

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        """No bid for a while: close it."""
        known = key.get() or {}
        key.delete()
        yield {"auction": key.key[0], "event": timer.name, "n": known.get("n"), "leader": known.get("leader")}


def count(bids: fk.Stream, by: str, name: str) -> None:
    """A row for each `by`, in the topic `name`."""
    stats = bids.group_by(by, id=name).agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(name, key=by, value=fk.Json())


def bids(flow: fk.Flow) -> fk.Stream:
    """The load."""
    return flow.source("bids", key="auction", value=fk.Json(BID))


eager = fk.Flow("soak-eager", regime=EAGER)
count(bids(eager), "auction", "eager")

lazy = fk.Flow("soak-lazy", regime=LAZY)
count(bids(lazy), "auction", "lazy")

# Both regimes side by side, each with an exchange, and a keyed state machine with timers.
mixed = fk.Flow("soak-mixed", regime=EAGER)
_bids = bids(mixed)
count(_bids, "auction", "eager")
count(_bids, "bidder", "eager-bidders")
_bids.key_by("auction").process(Auction(), id="auctions").sink("events", key="auction", value=fk.Json())
_lazy = _bids.with_regime(LAZY, id="lazily")
count(_lazy, "auction", "lazy")
count(_lazy, "bidder", "lazy-bidders")
