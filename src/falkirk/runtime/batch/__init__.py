"""The batch parts of a running app: which process drives their epochs, and how.

binding.py     a batch part on a cluster: its topics, its result partitions, the work of an epoch
driver.py      opens epochs, has Spark compute them, ends them
election.py    elects one driver among all processes that could drive an app
process.py     a driver process, as a supervisor starts it
child.py       the supervisor's end of it
asking.py      requests of people to a driver, through the log
"""

from __future__ import annotations
