"""Functions of rows: filter, map, select, with_columns and their relatives, and the union of streams.

expressing.py      runs expressions and functions over a batch; finds the rows for which they fail
filter.py          rows for which every predicate is true
select.py          new columns only, or beside the old; and a promise that some columns identify a row
explode.py         a row for each element of a list
map.py             a Python function that gives one row for each row
flat_map.py        a Python function that gives any number of rows for each row
map_batches.py     a Python function of all rows of a step
enrich.py          columns from a user's async function, which may call a service
concat.py          the rows of several streams
"""

from __future__ import annotations
