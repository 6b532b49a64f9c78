"""An app at work: its processes on hosts, and what people ask of it. Each room imports only rooms below it.

spark_workers/    workers on Spark's executors
epochs/           drivers of batch parts and backfills: they open epochs and have Spark compute them
processes/        the supervisor, its worker processes, and when they end
worker/           the loop that reads, runs steps, commits, and keeps state
query/            the state of running tasks, over HTTP
gateway/          HTTP requests and their answers, and the records of sinks for subscribers
observe/          the board of this host's workers: terminal, log lines, metrics, traces
inspect/          an app seen from outside, through its topics: status, state, peek, lineage, dead letters
rescale/          another number of tasks for an app that has ended
app/              a flow bound to a cluster: stages to topics, tasks, batch parts
rebuild/          operators that are rebuilt: whether they can be, from where, and the end of a shadow
messages/         what processes and people tell each other: requests, reports, events
layout/           what is recorded of an app: comparing a flow with it, deleting it, resetting it
host/             this host and process: settings, identity, clock, log lines
"""

from __future__ import annotations
