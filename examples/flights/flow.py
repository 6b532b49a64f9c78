"""Departure delays of flights: per carrier (eager), per airport (lazy), what is usual on each route (batch, on Spark), and
every flight that left very late, with what was known to be usual then; and what its passengers could have taken instead.

falkirk explain examples/flights/flow.py:flow
"""

from __future__ import annotations

import falkirk as fk

FLIGHT = {"id": fk.Int64, "carrier": fk.String, "origin": fk.String, "dest": fk.String, "delay": fk.Int64}

DELAYS = {
    "flights": fk.len(),
    "late": fk.sum(fk.col("delay") >= 15),
    "worst": fk.max("delay"),
    "mean": fk.mean("delay"),
}
"""What is kept of each group. A cancelled flight has no delay; it counts as a flight all the same."""

flow = fk.Flow("flights", regime=fk.EagerCheckpoint(step="50ms", every="5s"))
flights = flow.source("flights", key="carrier", value=fk.Json(FLIGHT))

# The topic is keyed by carrier, so this grouping needs no exchange. Eager: each step logs what it changes.
flights.group_by("carrier", id="by-carrier").agg(**DELAYS).sink("delays-by-carrier", key="carrier", value=fk.Json())

# The same flights by destination pass through an exchange. Lazy: a step logs only what it read, and is run again.
destinations = flights.with_regime(fk.LazyCheckpoint(step="100ms", every="5s")).group_by("dest", id="by-airport")
destinations.agg(**DELAYS).sink("delays-by-airport", key="dest", value=fk.Json())

# And by route, over all flights, whenever somebody asks: falkirk epoch flights usual
routes = flights.with_regime(fk.Batch()).group_by("origin", "dest", id="usual")
routes.agg(**DELAYS).sink("usual-delays", key=["origin", "dest"], value=fk.Json())

# What Spark found is a table of the stream: all of an epoch is there at once, between two steps.
USUAL = {"origin": fk.String, "dest": fk.String, "mean": fk.Float64}
usual = flow.table("usual-delays", key=["origin", "dest"], value=fk.Json(USUAL), broadcast=True)
very_late = flights.filter(fk.col("delay") >= 120).lookup(usual, columns={"mean": "usual"})
very_late.sink("very-late", key="carrier", value=fk.Json())

# The same topic, with the time of departure. A join in event time: a flight that leaves very late, with each that leaves for
# the same airport on time, within three hours. Windows: how many there are on each day.
DATED = {"dest": fk.String, "delay": fk.Int64, "at": fk.Int64}
dated = flow.source("dated", topic="flights", key=None, time="at", late="1h", value=fk.Json(DATED))
stranded, on_time = dated.filter(fk.col("delay") >= 120), dated.filter(fk.col("delay") < 15)
instead = stranded.select("dest", "at").join(on_time.select("dest", "at"), on="dest", within=("0s", "3h"), id="instead")
days = instead.group_by("dest", fk.tumbling("at", "1d"), id="choices").agg(choices=fk.len())
days.sink("choices-by-day", key=["dest", "window_start"], value=fk.Json())
