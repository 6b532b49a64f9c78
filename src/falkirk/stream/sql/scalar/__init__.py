"""Expressions of SQL on a row.

values.py          an expression with its type, and the interface of what compiles one
types.py           SQL's types as column types
expressions.py     the entry: any expression; columns, literals, comparison, boolean logic, case
arithmetic.py      numbers: operators and functions
strings.py         functions of text
patterns.py        like, and regular expressions
times.py           functions of dates and timestamps, intervals
time_formats.py    the formats of strftime and strptime
casts.py           cast and try_cast

conditions.py      conditions of where and on, taken apart: equalities, and what is about one side
constants.py       insert into t values (…): constants as rows of a table
"""

from __future__ import annotations
