"""The batch parts of a running app: who drives their epochs, and how.

binding.py     a batch part on a cluster: its topics, its result partitions, what an epoch of it is to do
driver.py      opens epochs, has Spark compute them, ends them
election.py    of all processes that could drive an app, one does
process.py     a driver process, as a supervisor starts it
child.py       the supervisor's end of it
asking.py      what people ask of a driver, through the log
"""

from __future__ import annotations
