"""SQL over streams: a query becomes the operators that the DSL would make.

text ──▶ parsing.py: sqlglot's tree, names qualified ──▶ query.py, relations.py: operators ──▶ a Stream

text.py           the text of a query, and errors that point into it
parsing.py        parses and qualifies; refuses statements that are no queries
types.py          SQL's types as column types
values.py         an expression with its type, and what compiles one
expressions.py    the entry: any expression; columns, literals, comparison, boolean logic, case
arithmetic.py     numbers
strings.py        functions of text
times.py          functions of dates and timestamps, intervals
aggregates.py     count, sum, min, max, avg … of a group
conditions.py     conditions of where and on, taken apart
joins.py          joins of a from clause
subqueries.py     exists and in, as semi and anti joins
windows.py        tumble and hop, table functions of a from clause
tops.py           row_number() … <= k: the first rows of each group
relations.py      a relation: a stream, and the names that a query has for its columns
query.py          select, from, where, group by, having, distinct; `flow.sql`
file.py           a file of create table, create view and insert into, as a flow
sets.py           union, intersect, except
"""

from __future__ import annotations
