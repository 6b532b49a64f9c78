"""Topics and state of a flow, as people read and write them.

endpoints.py       topics, and what their records say
objects.py         records as JSON objects
producing.py       rows as the records that a producer would write
stored_state.py    state in the checkpoint store: tables of keys and values
placing.py         which tasks may keep the state of a key
"""

from __future__ import annotations
