"""From the operators of a flow to its stages.

planner.py     streaming stages: where edges lie
batch.py       batch stages
feedback.py    a flow that reads what it writes
"""

from __future__ import annotations
