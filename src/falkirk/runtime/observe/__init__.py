"""The workers of this host, for people and for monitoring.

board.py      their state, from reports: no I/O
console.py    the board on a terminal, or as lines
watch.py      feeds the board, the console and the control topic
metrics.py    Prometheus metrics
http.py       metrics and health over HTTP
timed.py      an ownership that notes when each part of the take-over begins
traces.py     spans of steps, take-overs and versions
spans.py      those spans as OpenTelemetry has them
"""

from __future__ import annotations
