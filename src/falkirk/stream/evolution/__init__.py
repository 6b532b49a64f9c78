"""What a task does beside its steps when the code of its stage, or the number of its tasks, has changed.

evolution.py         all of it, for one task
migrating.py         migrate=: checked when the flow is built
moving.py            rows of an earlier version, on their way to where they are kept now
rebuild_plan.py      what runs again to rebuild an operator, and what is read again for it
rebuilding.py        the rebuild, step by step
times_again.py       event time while inputs are read again
shadow.py            a rebuild beside the running version, as an app of its own (shadow_circuit.py: what it runs)
resharding.py        the state of a stage's tasks, divided among another number of tasks
correcting.py        what makes up for the difference between recorded steps and what they would write now
"""

from __future__ import annotations
