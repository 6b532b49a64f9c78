"""Two stages with an edge between them, and what must hold there.

stages.py       the application: the first stage counts, the second one totals the counts
equations.py    what must hold: nothing needed is trimmed, and each row comes once
"""

from __future__ import annotations
