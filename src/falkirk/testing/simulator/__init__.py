"""A deterministic world to test the step protocol in: a cluster, workers, stores, clocks, and faults.

__main__.py    runs it from a shell: seeds, and the weakened protocols
explore.py     which runs to try, and the smallest plan that still fails
plan.py        the faults and unusual turns of one run
points.py      where a worker can be stopped, and what may happen to it there

world.py       hosts and their processes, and whose turn it is
host.py        one host, and the life of a process on it
worker.py      what a worker process does: polls the group, and lets its commit domains work
domain.py      a commit domain: takes tasks over, runs steps, commits them, lets tasks go
disk.py        the disk of a host, which loses what was not flushed, and the checkpoint store
cluster/       the Kafka cluster

toy.py         the application that runs in most simulations: counts by key
edges/         an application of two stages
flows/         applications that are real flows
epochs/        batch epochs and backfills

check.py       what must hold for every run, as equations over the log
weakened/      protocols that lack a clause, and runs that break them
"""
