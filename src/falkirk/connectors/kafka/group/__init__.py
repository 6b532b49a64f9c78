"""Which worker owns which task.

group.py      a worker as a static member of the group: the partitions assigned to it are its tasks
orphans.py    tasks that nobody owns: finds them, and has a member join again
"""

from __future__ import annotations
