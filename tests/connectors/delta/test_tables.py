"""The table of a sink: what does not fit, what is gone, and what is missing on the machine."""

from __future__ import annotations

import builtins
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from tests.checkpoint.outlet_contract import PLACE
from tests.connectors.delta.tables import KEYED, append, end, outlet, plan
from tests.connectors.postgres.chunks import keyed, rows_of

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.delta.client import TablePlace, options
from falkirk.connectors.delta.tables import arrow
from falkirk.connectors.files.places import place_at
from falkirk.errors import AwayError, ConfigError, StateError
from falkirk.state.objects import connect
from falkirk.stream.definition.outlets import GONE


def test_a_table_that_does_not_fit_is_refused_with_each_difference(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    settings: dict[str, str | None] = {
        "delta.setTransactionRetentionDuration": "interval 1 days",
        "delta.appendOnly": "true",
    }
    write_deltalake(url, pl.DataFrame({"id": [1.5]}).to_arrow(), configuration=settings)
    with pytest.raises(ConfigError) as caught:
        outlet(plan(url, KEYED, "id")).tables.check()
    assert caught.value.what == (
        f"table {url} does not fit the flow: delta.setTransactionRetentionDuration is set, so that it forgets how far the "
        "app has written; it accepts no updates; column 'id' is Float64, and the flow's needs Int64; it has no column 'n'"
    )
    with pytest.raises(AwayError, match="does not fit the flow"):
        end(outlet(plan(url, KEYED, "id")))


def test_a_table_with_partitions_of_binary_is_refused(tmp_path: Path) -> None:
    """Readers get other bytes, and a merge finds no such key."""
    url, columns = str(tmp_path / "table"), pl.Schema({"id": pl.Binary(), "n": pl.Int64()})
    DeltaTable.create(url, Schema.from_arrow(arrow(pl.DataFrame(schema=columns)).schema), partition_by=["id"])
    with pytest.raises(ConfigError, match="column 'id' is Binary, and it is partitioned by it") as caught:
        outlet(plan(url, columns, "id")).tables.check()
    assert "another column" in caught.value.hint


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "some" / "table")
    assert outlet(plan(url)).tables.check().endswith("it is created with the first rows")
    assert not (tmp_path / "some").exists()
    end(outlet(plan(url)))
    assert outlet(plan(url)).tables.check().endswith("its columns fit")


def test_a_url_of_a_folder_is_that_folder(tmp_path: Path) -> None:
    assert TablePlace(f"file://{tmp_path}/a%20b").folder == tmp_path / "a b"


@pytest.mark.parametrize("url", ["s3://bucket/a#1", "s3://bucket/a?b", "file:///tmp/a#1"])
def test_a_url_that_would_end_early_is_no_place(url: str) -> None:
    for place in (TablePlace, place_at, connect):
        with pytest.raises(ConfigError, match="in its URL, which would end there") as caught:
            place(url)
        assert caught.value.where == url[: url.rindex("/a") + 2]


def test_a_table_that_is_gone_is_not_made_again_without_its_rows(tmp_path: Path) -> None:
    url, copy = tmp_path / "table", tmp_path / "copy"
    one = outlet(plan(str(url)))
    end(one)
    assert append(one, Chunk(PLACE, Offset(0), Offset(3), rows_of([(0, 2)])))
    url.rename(copy)
    second = Chunk(PLACE, Offset(3), Offset(6), rows_of([(1, 2)]))
    for _ in range(2):
        with pytest.raises(AwayError):
            append(one, second)
    with pytest.raises(AwayError, match="the table is not there"):
        append(one, second)
    with pytest.raises(AwayError, match="is gone, and the app has written rows to it"):
        end(outlet(plan(str(url))), begin=3)
    assert not url.exists()
    copy.rename(url)
    assert append(one, second)


def test_a_table_of_which_rows_are_missing_stops_the_sink_and_says_which(tmp_path: Path) -> None:
    url, old = tmp_path / "table", tmp_path / "old"
    one = outlet(plan(str(url), KEYED, "id"))
    end(one)
    assert append(one, keyed((1, "a"), end=3))
    shutil.copytree(url, old)
    assert append(one, keyed((1, "b"), start=3, end=6))
    shutil.rmtree(url)
    old.rename(url)
    with pytest.raises(StateError, match="rows up to offset 3, and the log begins at offset 6") as caught:
        end(one, begin=6)
    assert 'Transaction("falkirk/app/sink/id/0", 6)' in caught.value.hint
    assert end(one, begin=3) == 3


@pytest.mark.parametrize("key", [[], ["id"]], ids=["added", "keyed"])
def test_a_constraint_that_refuses_a_row_is_a_wait_that_ends_with_it(key: list[str], tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    one, chunk = outlet(plan(url, KEYED, *key)), keyed((1, "a"))
    if not key:
        chunk = Chunk(
            chunk.place, chunk.start, chunk.end, [step._replace(rows=step.rows.drop(GONE)) for step in chunk.rows]
        )
    end(one)
    DeltaTable(url).alter.add_constraint({"short": "n <> 'a'"})
    with pytest.raises(AwayError, match="refuses a row, by a constraint") as caught:
        append(one, chunk)
    assert "nothing is lost" in caught.value.hint
    assert "| a |" not in str(caught.value), "values of rows are nobody's business"
    assert end(one) == 0
    DeltaTable(url).alter.drop_constraint("short")
    assert append(one, chunk)


def test_a_table_that_is_made_here_is_quick_to_open(tmp_path: Path) -> None:
    url = tmp_path / "table"
    one = outlet(plan(str(url)))
    end(one)
    for i in range(21):
        assert append(one, Chunk(PLACE, Offset(2 * i), Offset(2 * i + 2), rows_of([(i, 1)])))
    assert len(list((url / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    assert end(outlet(plan(str(url)))) == 42


def test_each_commit_says_who_made_it_and_of_which_steps(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    one = outlet(plan(url))
    end(one)
    assert append(one, Chunk(PLACE, Offset(0), Offset(9), rows_of([(4, 2), (7, 1)])))
    last = DeltaTable(url).history(1)[0]
    assert {name: last[name] for name in last if name.startswith("falkirk")} == {
        "falkirk.app": "app",
        "falkirk.sink": "sink",
        "falkirk.task": "t/0",
        "falkirk.steps": "4-7",
    }


def test_a_folder_that_cannot_be_written_to_is_away(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    one = outlet(plan(str(blocked / "table")))
    with pytest.raises(AwayError) as caught:
        end(one)
    assert "nothing is lost" in caught.value.hint


def test_without_the_library_the_sink_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "deltalake":
            raise ImportError("No module named 'deltalake'")
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs deltalake") as caught:
        TablePlace("lake/table")
    assert caught.value.hint == "pip install 'falkirk[delta]'"


def test_no_environment_turns_off_what_keeps_two_writers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    monkeypatch.setenv("AWS_CONNECT_TIMEOUT", "7s")
    assert options("s3a")["aws_conditional_put"] == "etag"
    monkeypatch.delenv("AWS_TIMEOUT", raising=False)
    assert (options("s3")["connect_timeout"], options("s3")["timeout"]) == ("7s", "60s")
