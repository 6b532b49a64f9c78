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
residuals.py      joins, other than inner ones, with conditions that are not equalities
subqueries.py     exists and in, as semi and anti joins
scalars.py        subqueries that are one value, as joins
nesting.py        a group whose having or select has subqueries, as a query around the groups
windows.py        tumble, hop and session, table functions of a from clause
tops.py           row_number() … <= k: the first rows of each group; order by … limit k
relations.py      a relation: a stream, and the names that a query has for its columns
query.py          select, from, where, group by, having, distinct; `flow.sql`
file.py           a file of create table, create view and insert into, as a flow
sets.py           union, intersect, except
numbers.py        the type of numbers that holds those of two types
constants.py      insert into t values (…)
catalog.py        tables and views at a prompt, and the file of each query
showing.py        the order in which a prompt shows a result
"""

from __future__ import annotations
