"""Operators that decide where rows go next: to the task of a key, to a topic, to another regime, to the errors.

repartition.py    rows move to the task that owns their key
route.py          each row names one of the topics of a sink
with_regime.py    another regime for what follows
errors.py         the failures of an operator, as rows
"""

from __future__ import annotations
