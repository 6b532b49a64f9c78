"""Rows in a table of Delta Lake: changes by key, values of each type, and tables with other columns than the flow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from tests.checkpoint.outlet_contract import PLACE
from tests.connectors.delta.tables import ADDED, KEYED, append, end, outlet, plan, rows
from tests.connectors.postgres.chunks import keyed, rows_of

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.delta.tables import arrow
from falkirk.connectors.files.parquet import StepRows
from falkirk.errors import AwayError
from falkirk.stream.definition.outlets import GONE

IDS, DAYS, NAMES = [-(2**63), 0, 2**63 - 1], [date(1, 1, 1), date(9999, 12, 31)], ["", "it's", "\uffff"]


def test_a_chunk_leaves_what_its_last_changes_say(url: str) -> None:
    one = outlet(plan(url, KEYED, "id"))
    end(one)
    assert append(one, keyed((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, None), (4, None), end=10))
    assert sorted(rows(url).rows()) == [(1, "c"), (2, "b")]
    assert append(one, keyed((2, None), (1, None), (1, "e"), (5, "f"), start=10))
    assert sorted(rows(url).rows()) == [(1, "e"), (5, "f")]


def test_a_chunk_that_changes_nothing_moves_the_position(url: str) -> None:
    one = outlet(plan(url, KEYED, "id"))
    end(one)
    assert append(one, keyed((1, None), (2, None), end=10))
    assert end(one) == 10
    assert append(one, keyed((1, "a"), start=10))
    assert rows(url).rows() == [(1, "a")]


def test_a_merge_reads_no_file_that_cannot_have_its_keys(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    one = outlet(plan(url, KEYED, "id"))
    end(one)
    assert append(one, keyed((1, "a"), (2, "b"), end=2))
    (old,) = (tmp_path / "table").glob("*.parquet")
    assert append(one, keyed((7, "c"), (9, "d"), start=2))
    away = old.rename(tmp_path / "away")
    assert append(one, keyed((7, "e"), (8, "f"), (9, None), start=4))
    away.rename(old)
    assert sorted(rows(url).rows()) == [(1, "a"), (2, "b"), (7, "e"), (8, "f")]


@pytest.mark.parametrize("partitions", [[], ["day"], ["name"], ["id"]])
def test_keys_at_the_ends_of_their_types_are_found(tmp_path: Path, partitions: list[str]) -> None:
    url = str(tmp_path / "table")
    columns = pl.Schema({"id": pl.Int64(), "day": pl.Date(), "name": pl.String(), "n": pl.Int64()})
    DeltaTable.create(url, Schema.from_arrow(arrow(pl.DataFrame(schema=columns)).schema), partition_by=partitions)
    one, keys = outlet(plan(url, columns, "id", "day", "name")), list(product(IDS, DAYS, NAMES))
    end(one)
    for step, chosen in enumerate((keys, keys[::2], keys[1::3], keys)):
        frame = pl.DataFrame(chosen, schema=[*columns][:3], orient="row").with_columns(n=step, gone=step == 3)
        frame = frame.rename({"gone": GONE}).cast({"n": pl.Int64()})
        assert append(one, Chunk(PLACE, Offset(step), Offset(step + 1), [StepRows("t/0", step, frame)]))
        assert rows(url).height == (0 if step == 3 else len(keys))


def test_a_key_of_all_columns_and_names_that_need_quotes(tmp_path: Path) -> None:
    url, columns = str(tmp_path / "table"), pl.Schema({'a"b.C': pl.Int64(), "Select": pl.Date()})
    one, days = outlet(plan(url, columns, *columns)), [date(2026, 1, 1), date(2026, 1, 2)]
    end(one)
    frame = pl.DataFrame({'a"b.C': [1, 2], "Select": days, GONE: [False, False]})
    assert append(one, Chunk(PLACE, Offset(0), Offset(2), [StepRows("t/0", 0, frame)]))
    gone = frame.head(1).with_columns(pl.lit(value=True).alias(GONE))
    steps = [StepRows("t/0", 1, gone), StepRows("t/0", 2, frame.tail(1))]
    assert append(one, Chunk(PLACE, Offset(2), Offset(4), steps))
    assert rows(url).rows() == [(2, days[1])]


def test_a_table_of_the_users_own_with_more_columns_and_partitions_is_written(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    mine = pl.DataFrame({"id": [9], "seen": [True], "n": ["mine"]})
    write_deltalake(url, mine.to_arrow(), partition_by=["n"], commit_properties=CommitProperties())
    one = outlet(plan(url, KEYED, "id"))
    assert end(one) == 0
    assert append(one, keyed((1, "a"), (9, "b"), end=7))
    assert sorted(rows(url).select("id", "seen", "n").rows()) == [(1, None, "a"), (9, True, "b")]
    plain = outlet(plan(url, KEYED), "other")
    end(plain)
    added = StepRows("t/0", 0, pl.DataFrame({"id": [2], "n": ["x/y"]}))
    assert append(plain, Chunk(PLACE, Offset(0), Offset(1), [added]))
    assert sorted(rows(url).select("id", "seen", "n").rows())[1] == (2, None, "x/y")


TYPES: dict[str, tuple[pl.DataType, list[Any], list[Any] | None]] = {
    "b": (pl.Boolean(), [True, None], None),
    "i": (pl.Int8(), [-(2**7), 1], None),
    "l": (pl.Int64(), [-(2**63), 2**63 - 1], None),
    "u8": (pl.UInt8(), [255, None], None),
    "u": (pl.UInt64(), [2**64 - 1, 0], [Decimal(2**64 - 1), Decimal(0)]),
    "f": (pl.Float32(), [0.5, float("inf")], None),
    "d": (pl.Float64(), [0.1, -1e300], None),
    "dec": (pl.Decimal(20, 4), [Decimal("1234567890123456.7891"), None], None),
    "s": (pl.String(), ["ü 'x' \\ \n {,}", "a\0b"], None),
    "raw": (pl.Binary(), [b"\0\xff", None], None),
    "day": (pl.Date(), [date(1, 1, 1), date(9999, 12, 31)], None),
    "at": (pl.Datetime("ms", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), None], None),
    "local": (pl.Datetime("us"), [datetime(1969, 1, 2, 3, 4, 5, 678_901), None], None),  # noqa: DTZ001
    "kind": (pl.Enum(["a", "b"]), ["b", None], None),
    "list": (pl.List(pl.String()), [["a", None], None], None),
    "one": (pl.Struct({"x": pl.UInt8(), "on": pl.Date()}), [{"x": 1, "on": date(2026, 1, 1)}, None], None),
}
"""Columns of each type, with their values, and what they are in the table if that differs."""


@pytest.mark.parametrize("key", [False, True])
def test_each_type_keeps_its_values(key: bool, tmp_path: Path) -> None:
    url, columns = str(tmp_path / "table"), pl.Schema({name: dtype for name, (dtype, _, _) in TYPES.items()})
    one = outlet(plan(url, columns, *(["l"] if key else [])))
    frame = pl.DataFrame({name: values for name, (_, values, _) in TYPES.items()}, schema=columns)
    frame = frame.with_columns(pl.lit(value=False).alias(GONE)) if key else frame
    end(one)
    for n in range(2 if key else 1):
        assert append(one, Chunk(PLACE, Offset(n), Offset(n + 1), [StepRows("t/0", n, frame)]))
    found = rows(url).sort("l")
    assert found.columns == list(TYPES)
    for name, (_, values, there) in TYPES.items():
        assert found[name].to_list() == (there or values), name


KEYS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "boolean": (pl.Boolean(), [True, False]),
    "small": (pl.Int8(), [-(2**7), 1]),
    "large": (pl.Int64(), [-(2**63), 2**63 - 1]),
    "near": (pl.Int64(), [2**62, 2**62 + 1]),
    "unsigned": (pl.UInt64(), [2**64 - 1, 0]),
    "decimal": (pl.Decimal(20, 4), [Decimal("-1234567890123456.7891"), Decimal("0.0001")]),
    "text": (pl.String(), ["ü 'x' \\ \n {,}", "x" * 100]),
    "long text": (pl.String(), ["x" * 5_000 + end for end in "ab"]),
    "signs": (pl.String(), ["\U0010ffff" * 40, "\U0010ffff" * 41]),
    "binary": (pl.Binary(), [b"\0\xff", b""]),
    "long binary": (pl.Binary(), [b"\xff" * 100, b"\xff" * 101]),
    "day": (pl.Date(), [date(1, 1, 1), date(9999, 12, 31)]),
    "millis": (pl.Datetime("ms", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), datetime(1, 1, 1, tzinfo=UTC)]),
    "micros": (pl.Datetime("us", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, n, UTC) for n in (678_901, 678_902)]),
    "local": (pl.Datetime("us"), [datetime(1969, 1, 2, 3, 4, 5, n) for n in (678_901, 678_902)]),  # noqa: DTZ001
    "kind": (pl.Enum(["a", "b"]), ["b", "a"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_rows_are_found_by_keys_of_each_type(name: str, tmp_path: Path) -> None:
    dtype, values = KEYS[name]
    url, columns = str(tmp_path / "table"), pl.Schema({"key": dtype, "n": pl.Int64()})
    one = outlet(plan(url, columns, "key"))
    end(one)
    for n, gone in enumerate(([False, False], [False, False], [True, False])):
        frame = pl.DataFrame({"key": values, "n": [n, n]}, schema=columns).with_columns(pl.Series(GONE, gone))
        for row in range(2):  # each in a file of its own
            chunk = Chunk(PLACE, Offset(2 * n + row), Offset(2 * n + row + 1), [StepRows("t/0", n, frame[row])])
            assert append(one, chunk)
        assert rows(url)["n"].to_list() == ([n, n] if n < 2 else [n])
    assert rows(url)["key"].cast(dtype).to_list() == values[1:]


def test_the_columns_of_a_flow_that_has_changed(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    end(outlet(plan(url)))
    old = Chunk(PLACE, Offset(0), Offset(3), rows_of([(0, 1)]))
    wider = pl.DataFrame({"step": [1], "row": [0], "more": ["x"]})
    new = Chunk(PLACE, Offset(3), Offset(5), [StepRows("t/0", 1, wider)])
    one = outlet(plan(url, pl.Schema({**ADDED, "more": pl.String()})))
    with pytest.raises(AwayError, match="it has no column 'more'"):
        end(one)
    assert append(one, old)
    with pytest.raises(AwayError, match="the table has no column 'more'"):
        append(one, new)
    write_deltalake(url, wider.head(0).to_arrow(), mode="append", schema_mode="merge")
    assert append(one, new)
    assert sorted(rows(url).rows()) == [(0, 0, None), (1, 0, "x")]
