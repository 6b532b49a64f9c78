"""Rebuilding operators on a cluster: in the steps of their tasks, or in a shadow beside the version that runs.

checks.py        whether it can be done, before anything says that it will be
beginnings.py    where the app began to read, and whether that is still there
shadows.py       the end of a shadow, from which its app's tasks take it over
"""

from __future__ import annotations
