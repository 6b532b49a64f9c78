"""Parts of a flow's definition that are not operators.

expressions.py    expressions over columns, checked on an empty frame
functions.py      Python functions (frames.py: frames from their results; fitting.py: what values a column may have)
keys.py           the keys and formats that users name
names.py          names of topics and apps
pattern.py        which topics a source reads
regimes.py        regimes (regime_plan.py: with all defaults resolved)
on_error.py       the handling of failures: Stop, Skip, DeadLetter
"""

from __future__ import annotations
