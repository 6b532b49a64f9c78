"""This host and this process.

settings.py    how an app is run: everything outside the flow
identity.py    a worker's identity, which survives restarts
clock.py       wall time, and whether it can be trusted
logs.py        what processes write on standard error
listening.py   the addresses where it answers, and the token that protects one
serving.py     the server behind some of them
open_files.py  how many files and connections it may open
"""

from __future__ import annotations
