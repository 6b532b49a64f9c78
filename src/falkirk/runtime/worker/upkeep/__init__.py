"""What happens to a worker's tasks beside their steps.

maintenance.py     begins what is due for each task: a flush, a version
task_upkeep.py     one task: what has happened since its last flush and version
objectives.py      versions placed so that a recovery takes no longer than the flow says
copies.py          copies versions to the checkpoint store, and trims what nobody needs any more
rates.py           what take-overs took, for plans of the next ones
"""

from __future__ import annotations
