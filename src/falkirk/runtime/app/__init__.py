"""A flow bound to a cluster: its stages have topics, which gives tasks.

app.py               the app and its tasks
hosts.py             several hosts, and versions of lazy state
needs.py             the topics and rights that it needs
registries.py        schema registries that it needs
outlets.py           the outlets of sinks outside Kafka, and whether they can write
sources.py           source topics for development
starts.py            where the inputs of a task begin
until_end.py         when all that the sources held is processed: `--until end`
divisions.py         inputs of recorded steps, read again
changes.py           what a run would change in the recorded app
warnings.py          warnings before a run: tasks without rows, results that expire soon
batch_part.py        a batch part: its topics, and the work of an epoch
backfill_state.py    the backfill of the app, as its log tells
shadow_app.py        a shadow: what is rebuilt beside the running version, as an app of its own
"""

from __future__ import annotations
