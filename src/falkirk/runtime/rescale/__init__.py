"""Another number of tasks: an app that has ended cleanly, its state divided among them.

record.py      what is recorded of a rescaling before anything is deleted
ends.py        where the tasks have ended: the steps, offsets and versions that the new tasks go on from
target.py      the tasks that there will be, and whether the state can be divided among them
states.py      the state and the first step of each new task
rescaling.py   all of it, in an order that can be killed anywhere
"""

from __future__ import annotations
