"""What a worker does next, as a state machine without I/O.

core.py            what has happened goes in, instructions come out
instructions.py    the instructions
aborts.py          transactions that abort one after another
transactions.py    those that use the worker's producer, as coroutines
"""
