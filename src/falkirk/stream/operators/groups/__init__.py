"""Operators that keep state by key: aggregates, distinct rows, the first rows of each key.

group.py             `group_by(…).agg(…)`, step by step
folding.py           its arithmetic: rows become partials, partials become states and results
group_batch.py       the same in a batch
multiset.py          all values of each group, in order, for aggregates that need them

partials.py          `stream.agg(…)`, first half: each task sends one row a step
total.py             second half: one task has the row of the whole stream

top_k.py             `top_k`: the best rows of each group
unique.py            `unique`: each row once
ordering.py          the order of the rows in a group, as bytes

over.py              `over`: functions of the rows around each row
over_frames.py       which rows those are, and what the functions give
over_step.py         one step: finds the rows that changes reach, and computes them again

ends.py              a table in the order of time, which says what may be deleted

versions.py          state of an earlier version of the flow, converted by a user's function
group_versions.py    the same for groups: aggregates that have not changed keep their parts
"""

from __future__ import annotations
