"""SQL over streams: a query becomes the operators that the DSL would make.

text ──▶ parsing.py: sqlglot's tree, names qualified ──▶ query.py, relations.py: operators ──▶ a Stream

text.py          the text of a query, and errors that point into it
parsing.py       parses and qualifies; refuses statements that are no queries
scalar/          expressions on a row: functions, casts, conditions, types
aggregates.py    count, sum, min, max, avg … of a group
joins.py         joins of a from clause
intervals.py     conditions that bound how far two event times are apart: an interval join
residuals.py     joins, other than inner ones, with conditions that are not equalities
subqueries.py    exists and in, as semi and anti joins
scalars.py       subqueries that are one value, as joins
nesting.py       a group whose having or select has subqueries, as a query around the groups
windows.py       tumble, hop and session, table functions of a from clause
tops.py          row_number() … <= k: the first rows of each group; order by … limit k
over.py          other window functions: sum(x) over (partition by … order by … rows between …)
relations.py     a relation: a stream, and the names that a query has for its columns
query.py         select, from, where, group by, having, distinct; `flow.sql`
sets.py          union, intersect, except
numbers.py       the type of numbers that holds those of two types
file.py          a file of create table, create view and insert into, as a flow
catalog.py       tables and views at a prompt, and the file of each query
showing.py       the order in which a prompt shows a result
"""

from __future__ import annotations
