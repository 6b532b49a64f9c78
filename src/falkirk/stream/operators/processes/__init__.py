"""A user's class with state and timers for each key.

process.py     calls the user's object with the rows and due timers of each key
keystate.py    reads and writes the state and timers of a step's keys
"""

from __future__ import annotations
