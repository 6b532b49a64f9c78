"""Two streams become one, by key.

joins.py           `stream.join`: checks what the user gives, and makes the operator
asof.py            `stream.join_asof`: the same for the nearest row in time
join_inputs.py     the two sides of either: which columns must be equal, and where rows meet
join_results.py    the result: its columns, what identifies a row, and what places it
lookups.py         Table, and `stream.lookup`
"""

from __future__ import annotations
