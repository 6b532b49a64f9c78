"""What users say beside operators.

expressions.py    expressions over columns, checked on an empty frame
functions.py      Python functions (frames.py: frames from what they give)
keys.py           keys and formats that are named
names.py          names of topics and apps
pattern.py        which topics a source reads
regimes.py        regimes (regime_plan.py: with all defaults resolved)
on_error.py       what becomes of what fails
"""

from __future__ import annotations
