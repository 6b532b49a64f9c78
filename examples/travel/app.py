"""How to fly from one airport to another: one app with all four regimes, over the flights of 2013.

questions over HTTP ──▶ lookup of usual ──▶ lookup of near ──┬──▶ the answer            ephemeral until answered, then eager
                              ▲                   ▲          └──▶ PostgreSQL            eager
                              │                   └── airports that are near by air     lazy: a loop over the routes flown
flights ──┬───────────────────┼── distinct routes ──▲                                   lazy
          └── usual delay of each route                                                 batch: Spark, over all flights

falkirk explain examples/travel/app.py:flow
"""

from __future__ import annotations

import falkirk as fk

FLIGHT = {"carrier": fk.String, "origin": fk.String, "dest": fk.String, "delay": fk.Int64}
QUESTION = {"origin": fk.String, "dest": fk.String}
FEW = 3
"""The most flights, one after the other, that an answer counts."""

flow = fk.Flow("travel", regime=fk.EagerCheckpoint(step="20ms", every="5s"))
flights = flow.source("flights", key="carrier", value=fk.Json(FLIGHT))

# Batch: what is usual on each route, over all flights, every hour. It may be old, so nothing of it is saved on the way.
history = flights.with_regime(fk.Batch(every="1h"))
routes = history.group_by("origin", "dest", id="usual").agg(flights=fk.len(), delay=fk.mean("delay"))
routes.sink("usual-delays", key=["origin", "dest"], value=fk.Json())

# Lazy: every flight is counted for its route, and only a route that is new goes on: a few hundred of all flights. A cancelled
# flight has no delay. The topic is keyed by carrier, so a task sees all flights of a carrier, and no exchange is needed.
live = flights.with_regime(fk.LazyCheckpoint(step="200ms", every="5s")).filter(~fk.col("delay").is_null())
flown = live.select("carrier", "origin", "dest").unique(id="flown")

# Every route is flown in both directions: what flies out comes back.
there, back = flown.select("origin", "dest"), flown.select(origin="dest", dest="origin")
ways = there.concat(back, id="both").unique(id="ways")
direct = ways.select("origin", "dest", legs=fk.lit(1).cast(fk.Int64))


def further(near: fk.Stream) -> fk.Stream:
    """One flight more from wherever is near, and of all ways to an airport the one with the fewest flights."""
    more = near.filter(fk.col("legs") < FEW).join(ways, left_on="dest", right_on="origin", suffix="_next")
    longer = more.select("origin", dest="dest_next", legs=fk.col("legs") + 1).filter(fk.col("origin") != fk.col("dest"))
    return longer.concat(direct).group_by("origin", "dest").agg(legs=fk.min("legs"))


near = direct.iterate(further, id="near")

# Ephemeral: nothing is promised to who asks before the answer has come. Eager: the answer, the row that PostgreSQL gets and
# the counts are committed together with the position behind the question.
questions = flow.http("ask", value=fk.Json(QUESTION), partitions=2)
usual = flow.table(
    "usual-delays", key=["origin", "dest"], value=fk.Json({"flights": fk.Int64, "delay": fk.Float64}), broadcast=True
)
known = questions.lookup(usual, id="with-usual")
found = known.lookup(flow.table(near, key=["origin", "dest"]), id="found")
found.answer("ask")
found.sink_postgres("answers", "travel", every="200ms")
asked = found.group_by("origin", id="asked").agg(questions=fk.len(), unknown=fk.sum(fk.col("legs").is_null()))
asked.sink_postgres("asked", "travel", key="origin", every="200ms")
