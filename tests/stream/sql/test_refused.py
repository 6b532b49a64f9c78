"""What a query may not say is refused with its place, what is wrong, and what to write instead."""

from __future__ import annotations

import pytest

import falkirk as fk

SESSION = "session(table bids partition by who, descriptor(at), interval '1' hour)"
REFUSED = [
    ("select pirce from bids", "there is no column 'pirce'", "pirce", "did you mean 'price'?"),
    ("select b.pirce from bids b", "there is no column 'pirce'", "pirce", "did you mean 'price'?"),
    ("select auction,\n  prize\nfrom bids", "there is no column 'prize'", "prize", "did you mean 'price'?"),
    ("select x.price from bids b", "there is no table 'x' here", "x.price", "there are: b"),
    ("select price from bidz", "there is no table 'bidz'", "bidz", "did you mean 'bids'?"),
    ("selct price from bids", "the SQL cannot be read: invalid expression", "from", "did you mean 'select'?"),
    ("select price fro bids", "the SQL cannot be read: invalid expression", "bids", "did you mean 'from'?"),
    ("select 'a from bids", "the SQL cannot be read: error tokenizing", "s", "close each quote"),
    ("select auction, price from bids group by auction", "column 'price' is neither in group by", "price", "max(price)"),
    ("select * from bids order by price", "a stream has no end by which it could be sorted", "price", "leave order by out"),
    ("select auction from bids having price > 3", "having is about groups", "price > 3", "write where"),
    ("select x from bids as b(x, y, z, u, v)", "bids has 4 columns, and this names 5", "bids", "leave the others out"),
    ("select who from bids as b(who)", "two columns are named 'who'", "bids", "another name"),
    ("select auction, odd, row_number() over (partition by who order by at) as n from lists", "of type List(Int64)",
     "row_number", ""),
    ("select distinct auction, odd from lists", "of type List(Int64)", "auction", ""),
    ("select auction, odd from lists union select price, odd from lists", "of type List(Int64)", "auction", ""),
    ("select auction, price from bids group by 7", "there is no column 7 in select, which has 2", "7", "the name of one"),
    ("select auction from bids order by auction limit 50%", "limit takes a number of rows", "50", "qualify rank()"),
    ("select * exclude (prise) from bids", "there is no column 'prise'", "prise", "did you mean 'price'?"),
    ("select * replace (1 as prise) from bids", "there is no column 'prise'", "1 as prise", "did you mean 'price'?"),
    ("select * rename (prise as p) from bids", "there is no column 'prise'", "prise", "did you mean 'price'?"),
    ("select auction from bids order by 2 limit 3", "there is no column 2 in select, which has 1", "2", "the name of one"),
    ("select b.at from bids b join lists c using (prize)", "column 'prize' is not in both tables", "prize", "'price'?"),
    ("select bid.* from bids", "there is no table 'bid' here", "bid.*", "did you mean 'bids'?"),
    ("select b.at from bids b join lists b on b.who = b.who", "two tables are named 'b'", "lists", "as NAME"),
    ("select sum(cast(price as decimal(18, 12)) * cast(price as decimal(18, 12))) as s from bids",
     "has 24 digits behind the point", "sum", "cast it: cast(… as decimal(20, 6))"),
    (("select who from bids b where exists (select 1 from lists l where l.who = b.who and l.price in (select price from bids"
     " c where c.at = b.at))"), "of its own query only", "l.price", "join the tables"),
    ("select * from bids limit 3", "a stream has no end, and no first rows", "3", "order by x desc limit 10"),
    ("select who + 1 as x from bids", "+ takes numbers, and this is String", "who", "cast(x as bigint)"),
    ("select auction from bids where price", "where takes conditions, and this is Int64", "price", "compare it"),
    ("select 1 as one from bids where who > 3", "String and Int64 cannot be compared", "who > 3", "cast one of them"),
    ("select foo(price) as x from bids", "there is no function foo", "foo", "docs/sql/index.md"),
    ("select median(price) from bids", "median is not an aggregate that streams have", "median", "there are: count"),
    ("select first_value(price) over (partition by who order by at) as x from bids", "first_value is not an aggregate",
     "first_value", "arg_min(x, at) over"),
    ("select who, count(*) as n from bids group by all", "group by all is not supported", "who", "group by 1, 2"),
    ("select sum(distinct price) from bids", "sum(distinct …) is not supported", "sum", ""),
    ("select count_if(distinct price > 5) from bids", "count_if(distinct …) is not supported", "count_if", "bool_or"),
    ("select array_agg(distinct price) from bids", "array_agg(distinct …) is not supported", "array_agg", "sorts by value"),
    ("select array_agg(price order by at) from bids", "array_agg(order by …) is not supported", "array_agg", "sorts"),
    ("select array_agg(price) filter (where price > 1) from bids", "array_agg has no filter", "array_agg", "in a subquery"),
    ("select count(*) as n from tumble(table bids, descriptor(true), interval '1' hour) group by window_start",
     "tumble has other arguments", "tumble", "descriptor(at)"),
    ("select string_agg(who, ',') from bids", "string_agg is not an aggregate that streams have", "who", "array_agg"),
    ("with v as (select who from bids), v as (select at from bids) select * from v", "two tables are named 'v'", "v",
     "another name"),
    ("select who from bids where", "the SQL cannot be read: something is missing here", "where", ""),
    ("select string_agg(who) from bids", "string_agg is not an aggregate that streams have", "who", "array_agg"),
    ("select now() as x from bids", "the current time is not a function of the row", "now", "metadata="),
    ("select price as a, auction as a from bids", "two columns are named 'a'", "auction as a", "another name"),
    ("select null as x from bids", "null has no type here", "x", "cast(null as bigint)"),
    ("select a from bids; select b from bids", "there is more than one statement", "b from bids", "one query"),
    ("create table x (a int)", "this is not a query", "x (a", "write select …"),
    ("select cast(who as timestamp) as x from bids", "String cannot be cast to Datetime", "who", "strptime"),
    ("select try_cast(who as int) as x from bids", "try_cast is not supported", "who", "on_error"),
    ("select case when price > 1 then 'a' else 2 end as x from bids", "this is Int64, and another", "2", "cast one"),
    ("select rank() over (partition by who) as x from bids", "the window has no order", "rank() over (", "order by"),
    ("select price from bids where max(price) > 3", "max is an aggregate, which has no place here", "price", ""),
    ("select auction from bids union select who from bids", "column 'auction' is Int64, and on the", "who from bids", "cast"),
    ("select auction from bids union select auction, price from bids", "one side has the columns", "auction, price", ""),
    ("select auction from bids except all select price from bids", "except all is not supported", "auction", "write except"),
    ("select (select price from bids) as m, auction from bids", "must be one value, and this one may have", "price", "agg"),
    ("select (select max(price), 1 from bids) as m, auction from bids", "has one column", "price", "select one value"),
    ("select auction from bids b where price < (select max(price) from bids c where c.at < b.at)", "with = only", "c.at", ""),
    ("select auction from bids b where price < (select max(c.price + b.price) from bids c)", "with = only", "c.price", ""),
    ("select auction from bids b where price < (select max(price) from bids c where c.who = b.who group by at)",
     "must be one value", "price", "aggregate"),
    ("select auction from bids b where exists (select 1 from bids c where c.at > b.at and c.price > b.price)",
     "a cross join would pair", "at", "join with on"),
    ("select auction from bids order by price limit 3", "order by takes columns of the result", "price", "select it too"),
    ("select auction from bids order by auction limit 3 offset 2", "offset is not supported", "2", "take more rows"),
    ("select auction from bids order by auction nulls first limit 3", "nulls come last here", "auction", "leave nulls first"),
    ("select auction from bids order by auction limit 1 + 1", "limit takes a number", "1", "limit 10"),
    ("select count(distinct price, who) from bids", "count(distinct …) takes one column", "count", "select distinct"),
    ("select regexp_matches(who, 'a', 'i') as x from bids", "flag is not supported here", "'i'", ""),
    ("with recursive c as (select auction from bids) select * from c", "a recursive query is not supported", "c", ""),
    ("select b.price from bids b cross join bids c", "a cross join would pair", "bids", "join with on"),
    ("select b.price from bids b, bids c where b.price > c.price", "a cross join would pair", "bids", "join with on"),
    ("select b.price from bids b natural join bids c", "natural join is not supported", "bids", "or using (x)"),
    ("select b.price from bids b asof join bids c on b.at >= c.at", "asof join is not supported", "bids", "using (x)"),
    ("select b.price from bids b join bids c on b.who = c.price", "String and Int64 cannot be compared", "b.who", "cast"),
    ("select b.prize from bids b join bids c using (who)", "there is no column 'prize'", "prize", "did you mean 'price'?"),
    ("select a.who from bids a full join bids b using (who) join bids c using (who)", "using after a full join", "who", ""),
    ("select who from bids a where price in (select max(price) from bids b where b.who = a.who)", "that aggregates", "a", ""),
    ("select who from bids where price > 1 or who in (select who from bids)", "of its own in where", "who", ""),
    ("select * from sessions(bids, 3)", "there is no table function sessions", "sessions", "there are: tumble"),
    ("select * from tumble(table bids, at, interval '1' hour)", "tumble has other arguments", "tumble", "write tumble(table"),
    ("select * from tumble(table bidz, descriptor(at), interval '1' hour)", "there is no table 'bidz'", "bidz", "'bids'?"),
    ("select * from tumble(table bids, descriptor(ts), interval '1' hour)", "there is no column 'ts'", "ts", "there are"),
    ("select * from tumble(table bids, descriptor(at), interval '1' month)", "of a fixed length", "'1'", "interval '1' hour"),
    ("select * from hop(table bids, descriptor(at), interval '1' hour, interval '1' minute)", "is longer than", "at", ""),
    ("select * from hop(table bids, descriptor(at), interval '1' second, interval '7' day)", "604,800", "at", "range="),
    ("select * from tumble(table bids, descriptor(who), interval '1' hour)", "who", "who", ""),
    ("select price, count(*) as n from tumble(table bids, descriptor(at), interval '1' hour) group by window_start",
     "column 'price' is neither in group by", "price", "max(price)"),
    ("select who from bids qualify row_number() over (partition by who) = 1", "row_number() has no order", "row", "order by"),
    ("select who from bids qualify row_number() over (order by price nulls first) <= 2", "nulls come last", "price", "leave"),
    ("select count(*) from bids group by rollup (auction)", "is not supported", "auction", "docs/sql/index.md"),
    ("select * from tumble(table bids partition by who, descriptor(at), interval '1' hour)", "tumble has", "tumble", ""),
    ("select * from session(table bids, at, interval '1' hour)", "session has other arguments", "session", "partition by"),
    ("select * from session(table bids = who, descriptor(at), interval '1' hour)", "session has other", "session", ""),
    ("select * from session(table bids, who, descriptor(at), interval '1' hour)", "session has other", "session", ""),
    ("select * from session(table bids partition by 1, descriptor(at), interval '1' hour)", "session has", "session", ""),
    (f"select * from {SESSION}", "rows get a session when they are grouped", "at", "group by who, window_start, window_end"),
    (f"select who, max(window_end) as e from {SESSION} group by who, window_start", "when they are grouped", "at", ""),
    (f"select who, count(*) as n from {SESSION} group by who", "when they are grouped", "at", "group by who, window_start"),
    (f"select b.who from {SESSION} as s join bids as b on s.who = b.who", "when they are grouped", "at", "around it"),
    (f"select who, count(*) as n from {SESSION} as s where price > 3 group by who, window_start", "where is not supported",
     "price > 3", "in a view"),
    (f"select price, count(*) as n from {SESSION} group by who, window_start, price", "sessions are partitioned by who",
     "price", "partition by who, k"),
    (f"select count(*) as n from {SESSION} group by upper(who), window_start", "are partitioned by who", "upper", ""),
    (f"select count(*) as n from {SESSION} group by window_start", "group by has no who", "window_start", "by who, window_"),
    (f"select auction, count(*) as n from {SESSION.replace('partition by who', '')} group by auction, window_start",
     "sessions are partitioned by no column", "auction", "partition by k"),
    (SESSION.join(["select who, count(*) as n from ", " group by who, window_start"]).replace("'1' hour", "'1' month"),
     "of a fixed length", "'1'", "interval '1' hour"),
    (f"select at, count(*) as n from {SESSION.replace('by who', 'by at')} group by at, window_start", "is the time of the",
     "at", "other columns"),
    (f"select whom, count(*) as n from {SESSION.replace('by who', 'by whom')} group by whom, window_start",
     "there is no column 'whom'", "whom", "did you mean 'who'?"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "what", "under", "hint"), REFUSED)
def test_a_query_that_cannot_be_is_refused_at_its_place(query: str, what: str, under: str, hint: str) -> None:
    with pytest.raises(fk.FalkirkError) as refused:
        flow().sql(query)
    error = refused.value
    place, line, carets = error.where.split("\n")
    begin = carets.index("^")
    number, column = (
        int(word.rstrip(" of")) for word in place.partition(" of")[0].replace("line ", "").split(", column ")
    )
    assert line.strip() == query.split("\n")[number - 1].strip()
    assert begin - 4 == column - 1
    assert line[begin : begin + carets.count("^")].startswith(under)
    assert what in error.what
    assert hint in error.hint


def test_a_refusal_reads_as_a_whole() -> None:
    with pytest.raises(fk.FalkirkError) as refused:
        flow().sql("select auction,\n  prize\nfrom bids")
    place = refused.value.where.partition("(")[2].partition(")")[0]
    assert str(refused.value) == (
        "there is no column 'prize'\n"
        f"  where: line 2, column 3 of the SQL ({place})\n"
        "      prize\n"
        "      ^^^^^\n"
        "  to do: did you mean 'price'? there are: at, auction, price, who"
    )
    assert "test_refused.py:" in place


def test_a_stream_of_another_flow_is_refused() -> None:
    with pytest.raises(fk.FalkirkError, match="is not a stream of this flow"):
        flow().sql("select * from a", a=fk.Flow("other").source("a", value=fk.Json({"a": int})))


def flow() -> fk.Flow:
    made = fk.Flow("refused")
    odd = {"auction": int, "price": int, "who": str, "at": fk.Datetime, "odd": fk.List(fk.Int64)}
    made.source("lists", value=fk.Json(odd))
    made.source("bids", value=fk.Json({"auction": int, "price": int, "who": str, "at": fk.Datetime}))
    return made
