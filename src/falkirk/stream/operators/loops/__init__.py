"""A part of a flow that runs until its result stays the same. The rule is in `falkirk.stream.operators.loops.iterate`.

iterate.py         `iterate`: the rule, and one step of a loop
variable.py        the input of the body: the rows of the iteration before
wiring.py          makes nodes of the operators of the body
node.py            the interface of a node: changes by iteration, in and out
rows.py            the rows in a loop: tuples of plain values

Nodes:
    linear.py      operators without state
    counting.py    `unique`: each row once
    joining.py     joins, whose sides are in state by key and iteration
    grouping.py    `group_by(…).agg(…)`, whose groups are in state by iteration
    folds.py       its aggregates that add up
    extremes.py    its min and max
"""

from __future__ import annotations
