"""What judges a soak: every record that its reader saw, held against an oracle that shares no code with what is tested.

checker.py     the verdict, as the records come
task.py        one task, replayed step by step
oracle.py      what flows give, in plain Python
spec.py        what the checker must know of a flow; specs.py: of those in flows.py
seen.py        records as a reader hands them over
murmur.py      where a producer puts a key
findings.py    what is wrong, counted by kind
world.py       sound logs, and the ways in which they can be spoilt, for the tests of the checker
"""
