"""A worker: the loop that reads, runs steps, commits, and keeps state.

worker.py          the loop: the group, reading
domain.py          a commit domain: a stage's tasks, which step and commit together
parts.py           parts that stop by themselves, while the others go on
task.py            one task: what it has read, and the closing of its steps (task_ports.py: what it asks of its worker)
step_threads.py    steps in threads of their own
sizes.py           whether records fit into their topics (emissions.py: what a step emits, as records)
reading/           the inputs of all tasks, broadcast tables, and records that are read again
run_queue.py       the tasks that have something to do
outlets.py         copies committed rows to sinks outside Kafka
pacing.py          when a step closes, and how large it is
performer.py       does what a domain's core says (`falkirk.checkpoint.worker`)
committer.py       the thread that runs transactions, and those that recover tasks
takeovers.py       tasks on their way to this worker
running.py         tasks that a domain runs, until they leave
stores.py          where tasks keep state (store_health.py: whether the checkpoint store answers)
upkeep/            flushes, versions, copies and trimming (threads.py: who does it)
topic_watch.py     watches the topics that the app reads
queried.py         its tasks, as the query endpoint reads them
work.py            a worker with its identity and its reports
"""

from __future__ import annotations
