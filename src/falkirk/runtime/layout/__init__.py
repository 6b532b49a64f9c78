"""The recorded layout of an app: what its tasks are, and everything that reads, compares or removes the record.

layout.py           the record
app_lookup.py       apps by their names
preflight.py        compares a flow with the cluster: what exists, what would have to be made
wanted_topics.py    the tasks of each stage, and the topics that a flow needs
compatibility.py    how an app continues from its layout to that of the flow, and when it cannot
progress.py         the last records of the steps topic
deleting.py         removes all that an app has
resetting.py        begins an app again, with empty state, at chosen offsets
"""

from __future__ import annotations
