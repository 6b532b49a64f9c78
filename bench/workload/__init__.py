"""The jobs that are measured: their load, Falkirk's side of them, and readers of their outputs.

- `bids.py`: the load; also a process that sends steadily
- `flows.py`: the jobs in Falkirk
- `app.py`: `falkirk run` of these flows, its workers, and their end
- `host.py`: a run that is lost with its stores, as a host is
- `outputs.py`: rate, commits and correctness, from an output topic
- `arrivals.py`: a process that reads at read_committed, and says how old records are when they arrive
- `witness.py`: a process that reads at read_committed, and says which ownership of a task made an output
- `steady.py`: an app with a state, a load and a witness, and how it recovers
"""
