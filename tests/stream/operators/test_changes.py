"""Sources and sinks of rows that change, against DuckDB over what is left of the changes after every step."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.access.producing import Rows, encoded, source_named
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.flow.explain import explain
from falkirk.stream.formats import key_of
from falkirk.testing import App, Record

Row = tuple[int, int]
"""Key and value."""
Log = list[tuple[int, int | None]]
"""The key that changes, and its value from there on; None: it is gone."""
Records = list[Any]
VALUE = fk.Json({"k": fk.Int64, "v": fk.Int64})
SCHEMA = {"i": pl.Int64, "k": pl.Int64, "v": pl.Int64}
QUERY = "select v, count(*) as n, sum(k)::bigint as total from last group by v"


def wanted(log: Log) -> tuple[Counter[Row], Counter[tuple[int, ...]]]:
    """What DuckDB says is left: the last row of each key, and the groups of these rows."""
    changes = pl.DataFrame([(i, k, v) for i, (k, v) in enumerate(log)], SCHEMA, orient="row")
    with database(changes=changes) as db:
        last = "from changes qualify row_number() over (partition by k order by i desc) = 1"
        last = f"select k, v from ({last}) where v is not null"
        groups = db.execute(f"with last as ({last}) {QUERY}").fetchall()
        return Counter(db.execute(last).fetchall()), Counter(groups)


def upserts(log: Log, _: Log) -> Rows:
    return [Record(key=k) if v is None else {"k": k, "v": v} for k, v in log]


def envelope(op: str, before: Any, after: Any, *, wrapped: bool = False) -> str:
    event = {"before": before, "after": after, "op": op, "source": {"table": "rows"}, "ts_ms": 1}
    return json.dumps({"schema": {"type": "struct"}, "payload": event} if wrapped else event)


def envelopes(log: Log, earlier: Log, *, full: bool) -> Rows:
    """What Debezium writes: with the row before, or with its key in deletions alone. A tombstone follows a deletion."""
    there, found = dict(earlier), Records()
    for i, (k, v) in enumerate(log):
        was, wrapped = there.get(k), i % 2 == 0
        before = {"k": k, "v": was} if was is not None and full else {"k": k, "v": None} if v is None else None
        there[k] = v
        if v is None:
            if was is not None:
                found += [(f"{k}", envelope("d", before, None, wrapped=wrapped)), (f"{k}", None)]
        else:
            found.append((f"{k}", envelope("c" if was is None else "u", before, {"k": k, "v": v}, wrapped=wrapped)))
    return found


def weights(log: Log, earlier: Log) -> Rows:
    there, found = dict(earlier), Records()
    for k, v in log:
        if (was := there.get(k)) is not None:
            found.append({"k": k, "v": was, "weight": -1})
        if v is not None:
            found.append({"k": k, "v": v, "weight": 1})
        there[k] = v
    return found


WEIGHED = fk.Json({"k": fk.Int64, "v": fk.Int64, "weight": fk.Int64})
SOURCES: dict[str, tuple[dict[str, Any], Callable[[Log, Log], Rows]]] = {
    "upsert": ({"key": "k", "value": VALUE, "changes": "upsert"}, upserts),
    "debezium": ({"value": VALUE, "changes": "debezium"}, lambda log, earlier: envelopes(log, earlier, full=True)),
    "debezium by key": (
        {"key": "k", "value": VALUE, "changes": "debezium"},
        lambda log, earlier: envelopes(log, earlier, full=False),
    ),
    "weights": ({"value": WEIGHED, "changes": "weights"}, weights),
}


def flow_of(source: str, regime: Any = None) -> fk.Flow:
    """The rows of a source, and groups of them, in each way that a sink can write."""
    flow = fk.Flow("changes", regime=regime)
    rows = flow.source("rows", **SOURCES[source][0])
    groups = rows.group_by("v", id="groups").agg(n=fk.len(), total=fk.sum("k"))
    for name, stream, key in (("rows", rows, "k"), ("groups", groups, "v")):
        stream.sink(f"{name}-upsert", key=key, value=fk.Json())
        if not isinstance(regime, fk.Batch):
            stream.sink(f"{name}-debezium", key=key, value=fk.Json(), changes="debezium")
            stream.sink(f"{name}-weights", key=key, value=fk.Json(), changes="weights")
    return flow


def left_in(app: App, name: str) -> list[Counter[tuple[int, ...]]]:
    """The integral of what each sink has written."""
    upserted = Counter(tuple(row.values()) for row in app.sinks[f"{name}-upsert"].table.values())
    enveloped: Counter[tuple[int, ...]] = Counter()
    for row in app.sinks[f"{name}-debezium"].rows:
        assert row is not None
        assert (
            row["op"]
            == {(False, True): "c", (True, True): "u", (True, False): "d"}[
                row["before"] is not None, row["after"] is not None
            ]
        )
        for side, sign in (("before", -1), ("after", 1)):
            if row[side] is not None:
                enveloped[tuple(row[side].values())] += sign
                assert enveloped[tuple(row[side].values())] >= 0, "what is taken back was there"
    weighed: Counter[tuple[int, ...]] = Counter()
    for row in app.sinks[f"{name}-weights"].rows:
        assert row is not None
        *cells, weight = row.values()
        weighed[tuple(cells)] += weight
    return [upserted, +enveloped, Counter({row: n for row, n in weighed.items() if n})]


logs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2) | st.none()), max_size=12)


@pytest.mark.parametrize("source", SOURCES)
@given(steps=st.lists(logs, max_size=4), crashes=st.sets(st.integers(0, 3)), rows=st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_after_each_step_sinks_hold_what_sql_says_of_the_rows_that_are_left(
    source: str, steps: Sequence[Log], crashes: set[int], rows: int
) -> None:
    app, log = App(flow_of(source), step_rows=rows), Log()
    for i, some in enumerate(steps):
        app.send("rows", SOURCES[source][1](some, log))
        log += some
        if i in crashes:
            app.step()
            app.crash()
        app.run()
        due, groups = wanted(log)
        assert left_in(app, "rows") == [due] * 3
        assert left_in(app, "groups") == [groups] * 3
    assert not app.dead_letters


LOG: Log = [(1, 0), (2, 0), (1, 1), (3, 2), (2, None), (1, 1), (3, None), (3, 1), (4, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "regime"), [*zip(SOURCES, cycle([fk.EagerCheckpoint(), fk.LazyCheckpoint()]), strict=False)]
)
def test_the_result_is_the_same_after_crashes_everywhere(source: str, regime: Any) -> None:
    given = {"rows": SOURCES[source][1](LOG, [])}
    app = fk.testing.run(flow_of(source, regime), given, crash_at="everywhere", step_rows=2)
    due, groups = wanted(LOG)
    assert left_in(app, "rows") == [due] * 3
    assert left_in(app, "groups") == [groups] * 3


@pytest.mark.parametrize("source", SOURCES)
@given(log=logs)
@settings(max_examples=8, deadline=None)
def test_a_batch_has_the_rows_that_are_left(source: str, log: Log) -> None:
    app = App(flow_of(source, fk.Batch()))
    app.send("rows", SOURCES[source][1](log, []))
    app.run()
    for name, due in zip(("rows", "groups"), wanted(log), strict=True):
        assert Counter(tuple(row.values()) for row in app.sinks[f"{name}-upsert"].table.values()) == due


def rows_of(flow: fk.Flow, changes: Any = "weights", **more: Any) -> Any:
    value = WEIGHED if changes == "weights" else VALUE
    return flow.source("rows", **{"value": value, "changes": changes, **more})


REASONS = {
    "t": (envelope("t", None, None), "op 't' names no rows"),
    "m": (envelope("m", None, None), "op 'm' is not known"),
    "no op": ('{"k": 1, "v": 2}', "not an envelope of Debezium"),
    "no after": (envelope("c", None, None), "op 'c' without after"),
    "no before": (
        envelope("u", None, {"k": 1, "v": 3}),
        "op 'u' without before: set REPLICA IDENTITY FULL, or give the",
    ),
    "no row before": (envelope("d", None, None), "op 'd' without before"),
    "no JSON": ("{", "not JSON"),
}


@pytest.mark.parametrize("case", REASONS)
def test_an_envelope_that_says_too_little_becomes_a_dead_letter_with_its_address(case: str) -> None:
    flow = fk.Flow("f")
    rows_of(flow, "debezium").sink("out", key="k", value=fk.Json())
    value, reason = REASONS[case]
    good = envelope("c", None, {"k": 1, "v": 2})
    app = fk.testing.run(flow, {"rows": [("1", good), ("1", value), ("1", None), ("2", good.replace("1", "2"))]})
    (letter,) = app.dead_letters
    assert reason in letter["reason"]
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("rows", 0, 1)
    assert len(app.sinks["out"].rows) == 2


def test_with_a_key_only_a_deletion_needs_the_key_of_the_row_before() -> None:
    flow = fk.Flow("f")
    rows_of(flow, "debezium", key="k").sink("out", key="k", value=fk.Json(), changes="weights")
    updated, gone = envelope("u", None, {"k": 1, "v": 3}), envelope("d", {"k": None, "v": 3}, None)
    app = fk.testing.run(flow, {"rows": [("1", updated), ("1", updated), ("1", gone)]})
    assert [letter["reason"] for letter in app.dead_letters] == [
        "op 'd' without k in before: it is not known which row is gone"
    ]
    assert app.sinks["out"].rows == [{"k": 1, "v": 3, "weight": 1}], "a record that comes twice changes nothing"


@pytest.mark.parametrize(
    ("op", "before", "after", "reason"),
    [
        ("c", None, {"K": 2, "v": 3}, "op 'c' without k in after"),
        ("u", {"k": 1, "v": 2}, {"k": 2, "v": 2}, "op 'u' changes k: Debezium writes a deletion and a creation"),
    ],
)
def test_with_a_key_a_row_needs_its_own_and_keeps_it(op: str, before: Any, after: Any, reason: str) -> None:
    flow = fk.Flow("f")
    rows_of(flow, "debezium", key="k").sink("out", key="k", value=fk.Json())
    sent = [("1", envelope("c", None, {"k": 1, "v": 2})), ("1", envelope(op, before, after))]
    app = fk.testing.run(flow, {"rows": sent})
    (letter,) = app.dead_letters
    assert reason in letter["reason"]
    assert letter["offset"] == 1
    assert app.sinks["out"].table == {1: {"k": 1, "v": 2}}


def test_a_value_that_debezium_did_not_have_is_not_taken_for_text() -> None:
    flow, placeholder = fk.Flow("f"), "__debezium_unavailable_value"
    value = fk.Json({"k": fk.Int64, "v": fk.String, "b": fk.Binary})
    flow.source("rows", key="k", value=value, changes="debezium").sink("out", key="k", value=fk.Json())
    row = {"k": 1, "v": "long", "b": "YQ=="}
    unsent = [{**row, "v": placeholder}, {**row, "b": base64.b64encode(placeholder.encode()).decode()}]
    sent = [("1", envelope("c", None, row)), *(("1", envelope("u", None, after)) for after in unsent)]
    app = fk.testing.run(flow, {"rows": sent})
    assert [letter["reason"] for letter in app.dead_letters] == [
        f"field 'after.{c}': Debezium has no value for it: set REPLICA IDENTITY FULL" for c in ("v", "b")
    ]
    assert app.sinks["out"].table[1]["v"] == "long"


def test_an_array_that_debezium_did_not_have_is_not_taken_for_its_items() -> None:
    flow, placeholder = fk.Flow("f"), "__debezium_unavailable_value"
    kinds = {"texts": fk.List(fk.String), "ids": fk.List(fk.String), "ns": fk.List(fk.Int32), "bs": fk.List(fk.Binary)}
    rows = flow.source("rows", value=fk.Json({"k": fk.Int64, **kinds}), changes="debezium")
    rows.sink("out", key="k", value=fk.Json(), changes="weights")
    row = {"k": 1, "texts": [placeholder, "a"], "ns": [95]}
    # The placeholder is the only item, or a UUID that is made of it. Numbers are its bytes.
    unsent: dict[str, Any] = {
        "texts": [placeholder],
        "ids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        "ns": [*placeholder.encode()],
        "bs": [base64.b64encode(placeholder.encode()).decode()],
    }
    sent = [("1", envelope("c", None, row)), *(("1", envelope("u", row, {**row, c: v})) for c, v in unsent.items())]
    app = fk.testing.run(flow, {"rows": sent})
    assert [letter["reason"] for letter in app.dead_letters] == [
        f"field 'after.{c}': Debezium has no value for it: set REPLICA IDENTITY FULL" for c in unsent
    ]
    assert len(app.sinks["out"].rows) == 1


@pytest.mark.parametrize("key", ["k", fk.Key("k", fk.Int64BE), fk.Key(["k"], fk.Json)])
def test_an_envelope_is_sent_with_the_key_of_its_row(key: Any) -> None:
    flow = fk.Flow("f")
    rows_of(flow, "debezium", key=key).sink("out", key="k", value=fk.Json())
    row, spelt = {"k": 4, "v": 1}, key_of(key).encode(pl.DataFrame({"k": [4]}))[0]
    sent = [{"before": None, "after": row, "op": "c"}, {"before": row, "after": None, "op": "d"}]
    found = encoded(
        source_named(flow.plan(), "rows"),
        [*sent, Record(key=[4] if isinstance(key, fk.Key) and key.array else 4, value=sent[0])],
        0,
    )
    assert [record.key for record in found] == [spelt] * 3


def test_the_last_of_several_envelopes_of_a_key_counts_whatever_the_number_of_partitions() -> None:
    flow = fk.Flow("f")
    rows_of(flow, "debezium", key="k").sink("out", key="k", value=fk.Json())
    sent = [{"before": None, "after": {"k": 4, "v": v}, "op": "u"} for v in range(1, 5)]
    for partitions in (1, 2, 3):
        app = fk.testing.App(flow, partitions=partitions)
        for event in sent:
            app.send("rows", [event])
        app.run()
        assert app.sinks["out"].table == {4: {"k": 4, "v": 4}}


def test_a_weight_of_null_becomes_a_dead_letter_and_one_of_zero_is_nothing() -> None:
    flow = fk.Flow("f")
    rows_of(flow).sink("out", key="k", value=fk.Json(), changes="weights")
    sent = [{"k": 1, "v": 1, "weight": w} for w in (None, 0, 3)]
    app = fk.testing.run(flow, {"rows": sent})
    assert [(x["reason"], x["offset"]) for x in app.dead_letters] == [("column 'weight' is null", 0)]
    assert app.sinks["out"].rows == [{"k": 1, "v": 1, "weight": 3}]


@pytest.mark.parametrize("kind", [fk.Int64, fk.UInt64])
def test_weights_whose_sum_could_wrap_become_dead_letters(kind: Any) -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=fk.Json({"k": int, "weight": kind}), changes="weights")
    rows.group_by("k", id="n").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    sent = [
        {"k": 1, "weight": w} for w in (2**63 - 1, 2**63 - 1, 1_000_000_000, *([2**63] if kind is fk.UInt64 else []))
    ]
    app = fk.testing.run(flow, {"rows": sent})
    assert {x["offset"]: x["reason"] for x in app.dead_letters}.keys() == {0, 1, 3} & set(range(len(sent)))
    assert "column 'weight' is 9223372036854775807, beyond ±1,000,000,000" in app.dead_letters[0]["reason"]
    assert app.sinks["out"].table == {1: {"k": 1, "n": 1_000_000_000}}


@pytest.mark.parametrize(
    ("kind", "value"), [(fk.Decimal(5, 2), "1.25"), (fk.List(fk.Int64), [1]), (fk.Struct({"a": fk.Int64}), {"a": 1})]
)
def test_a_batch_adds_up_the_weights_of_one_column_of_any_type(kind: Any, value: Any) -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    rows = flow.source("rows", value=fk.Json({"v": kind, "weight": int}), changes="weights")
    rows.agg(n=fk.len(), id="all").sink("out", value=fk.Json())
    sent = [(None, json.dumps({"v": v, "weight": w})) for v, w in ((value, 2), (value, -1), (None, 3))]
    assert fk.testing.run(flow, {"rows": sent}).sinks["out"].rows == [{"n": 4}]


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: rows.unique(),
        lambda rows: rows.group_by("k").agg(n=fk.len()).select("k"),
        lambda rows: rows.join(rows.select("k"), on="k"),
    ],
)
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
def test_a_row_that_is_taken_back_and_never_came_is_named(build: Callable[[Any], Any], regime: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    built = build(rows_of(flow))
    built.sink("out", key=sorted(built.schema), value=fk.Json())
    sent = [{"k": 1, "v": 1, "weight": 1}, {"k": 7, "v": 8, "weight": -1}]
    with pytest.raises(UserCodeError, match=r"'k': 7.* is retracted, but was never added") as raised:
        fk.testing.run(flow, {"rows": sent})
    assert "weight" in str(raised.value)


def test_a_group_names_the_whole_row_that_never_came_and_where_it_is() -> None:
    flow = fk.Flow("f")
    rows_of(flow).group_by("k").agg(n=fk.len(), total=fk.sum("v")).sink("out", key="k", value=fk.Json())
    sent = [{"k": 7, "v": 1, "weight": 1}, {"k": 7, "v": 8, "weight": -2}, {"k": 8, "v": 9, "weight": 1}]
    with pytest.raises(UserCodeError, match=r"a row of \{'k': 7, 'v': 8\} is retracted, but was never added") as raised:
        fk.testing.run(flow, {"rows": sent}, step_rows=1)
    assert "group_by" in raised.value.where


def test_an_append_only_stream_can_be_written_as_changes() -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=VALUE)
    rows.sink("envelopes", value=fk.Json(), changes="debezium")
    rows.sink("weights", value=fk.Json(), changes="weights")
    app = fk.testing.run(flow, {"rows": [{"k": 1, "v": 2}]})
    (event,) = app.sinks["envelopes"].rows
    assert event is not None
    assert (event["before"], event["after"], event["op"]) == (None, {"k": 1, "v": 2}, "c")
    assert app.sinks["weights"].rows == [{"k": 1, "v": 2, "weight": 1}]


@pytest.mark.parametrize("changes", ["upsert", "debezium"])
@pytest.mark.parametrize("name", ["before", "after", "gone", "come", "any"])
def test_a_key_of_a_sink_has_any_name(name: str, changes: Any) -> None:
    flow = fk.Flow("f")
    counts = flow.source("rows", value=fk.Json({name: int})).group_by(name).agg(n=fk.len())
    counts.group_by(name).top_k(1, by="n").sink("out", key=name, value=fk.Json(), changes=changes)
    last = fk.testing.run(flow, {"rows": [{name: 1}, {name: 1}]}, step_rows=1).sinks["out"].rows[-1]
    assert last is not None
    assert (last["after"] if changes == "debezium" else last) == {name: 1, "n": 2}


def test_what_one_flow_writes_as_changes_another_reads() -> None:
    flow = fk.Flow("f")
    made = rows_of(flow, "upsert", key="k")
    made.sink("envelopes", key="k", value=fk.Json(), changes="debezium")
    made.sink("weighed", key="k", value=fk.Json(), changes="weights")
    by_envelope = flow.source("read", topic="envelopes", value=VALUE, changes="debezium")
    by_envelope.sink("first", key="k", value=fk.Json())
    weighed = flow.source("weighed", value=WEIGHED, changes="weights")
    weighed.sink("second", key="k", value=fk.Json())
    app = fk.testing.run(flow, {"rows": upserts(LOG, [])}, crash_at=[1])
    due = wanted(LOG)[0]
    for name in ("first", "second"):
        assert Counter(tuple(row.values()) for row in app.sinks[name].table.values()) == due


REFUSED: dict[str, Callable[[fk.Flow], Any]] = {
    "is not supported.*did you mean .upsert": lambda f: rows_of(f, "upserts"),
    "time= is for append-only sources": lambda f: rows_of(f, time="v"),
    "metadata= is for append-only sources": lambda f: rows_of(f, "debezium", metadata=["offset"]),
    "replaces the row of a key, and the source has none": lambda f: rows_of(f, "upsert"),
    "keeps no rows, so that it has no key": lambda f: rows_of(f, key="k"),
    "needs an integer column 'weight'": lambda f: rows_of(f, value=VALUE),
    "is not JSON, and envelopes": lambda f: rows_of(f, "debezium", value=fk.Text()),
    "an envelope has more fields": lambda f: rows_of(f, "debezium", value=fk.Json({"k": int}, extra="refuse")),
    "there is no column 'x'": lambda f: rows_of(f, "debezium", key="x"),
    "an append-only topic cannot say so": lambda f: rows_of(f).sink("o", key="k", value=fk.Json(), changes="append"),
    "changes='log' is not supported": lambda f: rows_of(f).sink("o", value=fk.Json(), changes="log"),
    "must stay in order.*no key": lambda f: rows_of(f).sink("o", value=fk.Json(), changes="weights"),
    "written by key, and the sink has none": lambda f: rows_of(f).sink("o", value=fk.Json()),
    "does not identify a row": lambda f: rows_of(f, "upsert", key="k").sink(
        "o", key="v", value=fk.Json(), changes="debezium"
    ),
    "writes one column alone, which does not say what changes=\"weights\"": lambda f: rows_of(f).sink(
        "o", key="k", value=fk.Int64BE("v"), changes="weights"
    ),
    "writes one column alone, which does not say what changes=\"debezium\"": lambda f: rows_of(f).sink(
        "o", key=["k", "v"], value=fk.Text("op"), changes="debezium"
    ),
    "has a column 'weight', and so have the records": lambda f: rows_of(f).with_columns(weight=fk.lit(1)).sink(
        "o", key="k", value=fk.Json(), changes="weights"
    ),
    "a batch part has no changes": lambda f: rows_of(f).with_regime(fk.Batch()).sink(
        "o", key="k", value=fk.Json(), changes="weights"
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_refused_where_it_is_defined(words: str) -> None:
    with pytest.raises(DefinitionError, match=f"(?s){words}") as raised:
        REFUSED[words](fk.Flow("f"))
    assert "test_changes.py:" in str(raised.value)


def test_new_records_alone_do_not_tell_a_batch_what_they_take_back() -> None:
    flow = fk.Flow("f", regime=fk.Batch(history="new"))
    rows_of(flow).sink("out", key="k", value=fk.Json())
    with pytest.raises(DefinitionError, match="take back rows that it has not seen"):
        flow.plan()


def test_a_sink_with_changes_says_so_in_the_plan() -> None:
    assert "sink rows-debezium: topic rows-debezium, by k, changes as debezium" in explain(flow_of("upsert"))


def test_of_a_sink_that_writes_each_change_every_record_counts() -> None:
    stage = next(s for s in flow_of("weights").plan().stages if "groups-upsert" in [o.topic for o in s.outputs])
    topics = [i.topic for i in stage.inputs] + [o.topic for o in stage.outputs]
    circuit = stage.circuit(0, Layout(dict.fromkeys(topics, 1)))
    assert stage.evolution(circuit).tables() == {"groups-upsert"}
