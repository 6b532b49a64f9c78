"""The processes of a run on this host, and when they end.

supervisor.py      worker processes, a warm spare, restarts
process.py         a worker process
companions.py      the processes beside the workers
kept_child.py      a process that works beside the workers, as its supervisor sees it
driver_child.py    the one that drives batch parts
gateway_child.py   the one that answers requests to HTTP sources; gateway_process.py is its other end
parent.py          children end with their supervisor
draining.py        leaving when the work is done, or when someone asks for it
"""

from __future__ import annotations
