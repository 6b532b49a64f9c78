"""The processes of a run on this host, and when they end.

supervisor.py      worker processes, a warm spare, restarts
process.py         a worker process
driver_child.py    the process that drives batch parts, as its supervisor sees it
parent.py          children end with their supervisor
draining.py        leaving when the work is done, or when someone asks for it
until_end.py       `--until end`: when that is
"""

from __future__ import annotations
