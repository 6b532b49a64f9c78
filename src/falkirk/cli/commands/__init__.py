"""The commands of `falkirk`, as --help lists them. Commands on one subject share a file.

explain.py          `explain`: a plan of the flow, without a cluster
plan.py             `plan`: what a changed flow would do to its app
plan_recovery.py    `plan --if-dies`: what a recovery would do, and how long it would take
check.py            `check`: preflight checks of a flow on its cluster
topics.py           `topics`: the topics and rights that an app needs, printed or made
send.py             `send`: rows from standard input into a topic
kafka.py            `kafka`: the embedded Kafka, started, stopped, shown
spark.py            `spark`: prepares Spark on this machine, so that it starts sooner

run.py              `run`, `dev`, `rebuild` and `worker`: the processes of an app
sql.py              `sql`: runs a file of SQL as an app, or a prompt
serve.py            `serve`: a gateway, which answers HTTP requests
backfill.py         `backfill`: the first state of a new flow, computed by Spark

status.py           `status`: tasks, their owners and lag, and workers
peek.py             `peek`: decoded records of a topic
state.py            `state`: what operators keep for their keys
why.py              `why`: the input records behind an output record
dlq.py              `dlq`: dead letters, counted, shown, written again

epoch.py            `epoch` and `driver`: the epochs of a batch part
requests.py         `pause`, `resume`, `checkpoint` and `drain`
rescale.py          `rescale`: another number of tasks
reset.py            `reset`: clears the state, and chooses where sources start
delete.py           `delete`: removes all that an app has
"""

from __future__ import annotations
