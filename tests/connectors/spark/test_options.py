"""What a read is asked for, and how its division is shared: pure functions."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

import falkirk as fk
from falkirk.checkpoint.ids import Offset
from falkirk.connectors.spark.columns import Columns, arrow_type, spark_type
from falkirk.connectors.spark.division import LEAST, WAVES, Division, slices
from falkirk.connectors.spark.options import Options
from falkirk.errors import ConfigError
from falkirk.stream.formats import Float32BE, Format, Int16BE, Int32BE, Raw, Text
from falkirk.stream.formats.spoken import format_of

GIVEN = {"brokers": "127.0.0.1:9092", "topic": "bids"}

RANGES = st.dictionaries(
    st.integers(0, 9),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(lambda r: (Offset(min(r)), Offset(max(r)))),
    max_size=6,
)


@given(RANGES, st.integers(1, 16), st.sampled_from([0, 1_000, 123_457]))
def test_slices_are_the_division_each_offset_once(
    ranges: dict[int, tuple[Offset, Offset]], cores: int, most: int
) -> None:
    cut = slices(Division("id", ranges), cores, most)
    for partition, (start, end) in ranges.items():
        mine = sorted((s.start, s.end) for s in cut if s.partition == partition)
        edges = [start, *(e for _, e in mine)]
        assert [s for s, _ in mine] == edges[:-1]
        assert edges[-1] == end
    total = sum(end - start for start, end in ranges.values())
    size = most or max(LEAST, -(-total // (cores * WAVES)))
    assert all(0 < s.end - s.start <= size for s in cut)
    assert len(cut) <= -(-total // size) + len(ranges)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": ""}, "the option 'topic' is missing"),
        ({"ranges": "0-9"}, "'0-9' does not say what to read"),
        ({"ranges": "{0: [9, 3]}"}, "does not say what to read"),
        ({"ranges": "{0: [0, 3]}", "starting": "latest"}, "'ranges' says where to begin and end already"),
        ({"starting": "yesterday"}, "'yesterday' is not a valid position in a topic"),
        ({"ending": "2026-01-31T12:00:00"}, "not a valid position in a topic\n.*\n.*with its zone"),
        ({"value": "__import__('os').getcwd()"}, "does not describe a format"),
        ({"value": "Json()"}, "does not describe a format"),
        ({"value": "Json({'a': Int65})"}, "does not describe a format"),
        ({"value": "Text('key')", "metadata": "key"}, "'key' is a column of the value and of the metadata"),
        ({"metadata": "offest"}, "a record has no 'offest'\n.*\n.*did you mean 'offset'"),
        ({"malformed": "drop"}, "'malformed' is 'drop'\n.*'fail' or 'skip'"),
        ({"slice": "0"}, "'slice' is '0'"),
        ({"patience": "soon"}, "'soon' is not a duration"),
        ({"step": "3"}, "the option 'step' needs to know whose"),
        ({"step": "[3]", "app": "a"}, r"'\[3\]' cannot be read"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Options.parse({**GIVEN, **options})


@pytest.mark.parametrize(
    "value",
    [
        fk.Json({"a": fk.Int64, "b c": fk.UInt8, "in": fk.Struct({"x": fk.List(fk.Datetime), "y": fk.Date})}),
        fk.Json({"a": fk.Decimal(38, 10), "in": fk.List(fk.Struct({"x": fk.Decimal(5, 2)}))}),
        fk.Json(
            {"in": fk.Struct({"b.c": fk.Int64, "class": fk.Int64, "1st": fk.Int64, "a: b'": fk.Int64, "ﬁ": fk.Int64})}
        ),
        Text("line"),
        Raw(),
        Int16BE("n"),
        Int32BE("n"),
        Float32BE("n"),
    ],
    ids=repr,
)
def test_a_format_is_known_again_from_its_own_text(value: Format) -> None:
    again = format_of(str(value))
    assert repr(again) == repr(value)
    assert again.schema == value.schema


def test_every_type_of_a_column_has_one_in_spark() -> None:
    for kind in (
        fk.Int8, fk.Int16, fk.Int32, fk.Int64, fk.UInt8, fk.UInt16, fk.UInt32, fk.UInt64, fk.Float32, fk.Float64,
        fk.String, fk.Boolean, fk.Binary, fk.Date, fk.Datetime, fk.DatetimeMicros, fk.Decimal(38, 10),
    ):  # fmt: skip
        schema = fk.Json({"plain": kind, "deep": fk.List(fk.Struct({"x": kind}))}).schema
        assert schema is not None
        frame = pl.DataFrame(schema={name: spark_type(dtype) for name, dtype in schema.items()})
        for name, dtype in frame.schema.items():
            assert pl.from_arrow(frame[name].to_arrow().cast(arrow_type(dtype))).dtype == dtype  # type: ignore[union-attr]


def test_a_duration_in_a_state_is_an_interval_of_spark() -> None:
    """As of fk.max("took"), which no format has."""
    for dtype in (pl.Duration("ms"), pl.Duration("us"), pl.List(pl.Duration("ns"))):
        kind = from_arrow_schema(pa.schema([("took", arrow_type(spark_type(dtype)))]))["took"].dataType
        assert "interval day to second" in kind.simpleString()


def test_a_format_brings_its_columns_and_no_others_unless_they_are_asked_for() -> None:
    options = Options.parse({**GIVEN, "value": "Json({'a': Int64})", "kafka.client.id": "x"})
    assert options.cluster.client == {"client.id": "x"}
    assert options.metadata == {}
    renamed = Options.parse({**GIVEN, "value": "Text('offset')", "metadata": '{"at": "offset"}'})
    columns = Columns("bids", renamed.value, renamed.metadata, skip_malformed=False)
    assert columns.schema == {"offset": pl.String(), "at": pl.Int64()}
