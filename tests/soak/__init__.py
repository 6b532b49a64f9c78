"""The adversary: it kills a running flow for hours, and checks every record that a separate reader sees.

    python -m tests.soak --kills 1000 --seed 7
    python -m tests.soak --kills 200 --brokers 3        leaders fail over, and are moved
    python -m tests.soak --kills 200 --flow daily       Avro under a registry, dead letters, two clusters, one of them guarded
    python -m tests.soak --kills 1000 --flow relational --brokers 3      an interval join, sessions, top-k and a loop

    load.py ──▶ bids ──▶ falkirk run ──▶ sinks, steps ──▶ reader.py (read_committed, its own process)
                          ▲                                  └─ check/: checker.py ── task.py ── oracle.py
                 soak.py kills it

What the reader sees is right if and only if, for every task,

    steps = 0, 1, 2, …      start(n+1) = end(n)      records(n) = oracle(division(n) | divisions 0..n−1)

The checker takes nothing from the system under test but the step records' divisions and clocks, which decide what
intermediate values are visible; how those are computed it works out by itself, from the inputs, in plain Python.
"""
