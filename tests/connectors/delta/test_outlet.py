"""Chunks in a table of Delta Lake: the contract of outlets, crashes around a commit, and writers that meet."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.checkpoint.outlet_contract import PLACE, Log, Published, any_publishers, crashes_at_every_call
from tests.connectors.delta.tables import KEYED, append, end, outlet, plan, rows, shown
from tests.connectors.postgres.chunks import keyed, rows_of
from tests.s3 import BUCKET, S3

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.delta import outlet as module
from falkirk.connectors.delta.outlet import DeltaOutlet
from falkirk.errors import AwayError


class Died(Exception):
    """A worker is killed."""


# -- the contract ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "calls"), [(9, 3), pytest.param(1, 8, marks=pytest.mark.slow), pytest.param(9, 8, marks=pytest.mark.slow)]
)
def test_a_crash_at_every_call_loses_and_doubles_nothing(most: int, calls: int, tmp_path: Path) -> None:
    numbers = count()

    def make() -> tuple[DeltaOutlet, Published]:
        url = str(tmp_path / str(next(numbers)))
        return outlet(plan(url)), shown(url)

    crashes_at_every_call(make, most, rows_of, calls)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
def test_any_number_of_publishers_leave_one_chain(seed: int, tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    any_publishers(seed, lambda: outlet(plan(url)), shown(url), rows_of)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("key", [False, True])
def test_a_crash_before_and_after_the_tables_commit_loses_and_doubles_nothing(
    key: bool, answered: bool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`answered`: the commit is in the table, and the worker dies before it knows."""
    told = plan(url, KEYED, *(["id"] if key else []))

    def chunk(n: int) -> Chunk[Any]:
        made = keyed((n, "a"), (n + 1, "b"), start=2 * n, end=2 * n + 2)
        return (
            made
            if key
            else Chunk(PLACE, made.start, made.end, [s._replace(rows=s.rows.drop(module.GONE)) for s in made.rows])
        )

    end(outlet(told))
    plain = DeltaOutlet._write

    def dies(self: DeltaOutlet, *arguments: Any) -> None:
        if answered:
            plain(self, *arguments)
        raise Died

    for n in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(DeltaOutlet, "_write", dies)
            with pytest.raises(Died):
                append(outlet(told), chunk(n))
        again = outlet(told)
        assert end(again) == 2 * n + 2 * answered
        assert append(again, chunk(n)) is not answered
        assert not append(again, chunk(n))
    wanted = [(n, "a") for n in range(3)] + [(3, "b")] if key else [(n + i, "ab"[i]) for n in range(3) for i in (0, 1)]
    assert sorted(rows(url).rows()) == sorted(wanted)


@pytest.mark.parametrize("lost", ["_delta_log", ".parquet"])
def test_a_request_whose_answer_is_lost_is_not_made_twice(lost: str, s3: S3) -> None:
    url = f"s3://{BUCKET}/table"
    one, chunk = outlet(plan(url)), Chunk(PLACE, Offset(0), Offset(7), rows_of([(0, 2)]))
    end(one)
    s3.loses_put = lost
    with suppress(AwayError):
        append(one, chunk)
    assert s3.loses_put == "", "no such request was made"
    if not end(one):
        assert append(one, chunk)
    assert not append(one, chunk)
    assert shown(url)(Log([])) == [(0, 2)]
    assert end(one) == 7


def test_a_bucket_that_refuses_is_away_and_then_goes_on(s3: S3) -> None:
    url = f"s3://{BUCKET}/table"
    one, chunk = outlet(plan(url)), Chunk(PLACE, Offset(0), Offset(7), rows_of([(0, 2)]))
    end(one)
    with s3.behaving("refuses"):
        for call in (lambda: append(one, chunk), lambda: end(one)):
            with pytest.raises(AwayError) as caught:
                call()
            assert caught.value.where == f"table {url}"
            assert "nothing is lost" in caught.value.hint
    assert append(one, chunk)


@pytest.mark.slow
def test_a_bucket_that_gives_no_answer_is_away_and_then_goes_on(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "5s")  # long enough for answers that a busy machine gives
    url = f"s3://{BUCKET}/table"
    one, chunk = outlet(plan(url)), Chunk(PLACE, Offset(0), Offset(7), rows_of([(0, 2)]))
    end(one)
    with s3.behaving("hangs"), pytest.raises(AwayError):
        append(one, chunk)
    assert append(one, chunk)


# -- writers that meet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [False, True])
def test_tasks_that_commit_at_the_same_time_all_succeed(key: bool, tmp_path: Path) -> None:
    url, tasks, steps = str(tmp_path / "table"), 3, 5
    told = plan(url, KEYED, *(["id"] if key else []))
    failed: list[BaseException] = []

    def work(task: int) -> None:
        try:
            one = outlet(told)
            end(one)
            for n in range(steps):
                chunk = keyed((task, str(n)), start=n, end=n + 1, partition=task)
                if not key:
                    (step,) = chunk.rows
                    chunk = Chunk(
                        chunk.place, chunk.start, chunk.end, [step._replace(rows=step.rows.drop(module.GONE))]
                    )
                assert append(one, chunk)
        except BaseException as error:  # noqa: BLE001  # it is looked at below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    every = [(task, str(n)) for task in range(tasks) for n in range(steps)]
    assert sorted(rows(url).rows()) == ([(task, str(steps - 1)) for task in range(tasks)] if key else every)
    assert {DeltaTable(url).transaction_version(f"falkirk/app/sink/id/{task}") for task in range(tasks)} == {steps}


def test_publishers_of_one_task_at_the_same_time_leave_one_chain(tmp_path: Path) -> None:
    url, steps = str(tmp_path / "table"), 20
    chunks = [Chunk(PLACE, Offset(3 * i), Offset(3 * i + 3), rows_of([(i, 2)])) for i in range(steps)]
    counts: list[int] = []

    def work() -> None:
        mine, written = outlet(plan(url)), 0
        at = end(mine)
        while at < 3 * steps:
            written += append(mine, chunks[at // 3])
            at = end(mine)
        counts.append(written)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == steps
    assert shown(url)(Log([])) == [(i, 2) for i in range(steps)]


def test_a_zombie_that_wakes_just_before_its_commit_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    zombie, owner = outlet(plan(url)), outlet(plan(url))
    end(zombie)
    plain, chunk = zombie._write, Chunk(PLACE, Offset(0), Offset(3), rows_of([(0, 2)]))

    def late(*arguments: Any) -> None:
        if end(owner) == 0:
            assert append(owner, chunk)
        plain(*arguments)

    zombie._write = late  # type: ignore[method-assign]
    assert not append(zombie, chunk)
    assert shown(url)(Log([])) == [(0, 2)]


def test_a_table_that_is_committed_to_in_each_attempt_is_a_wait_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, tries = str(tmp_path / "table"), count()
    one, chunk = outlet(plan(url)), Chunk(PLACE, Offset(0), Offset(3), rows_of([(0, 2)]))
    end(one)
    plain = one._write

    def crossed(*arguments: Any) -> None:
        next(tries)
        DeltaTable(url).alter.set_table_properties(
            {"delta.logRetentionDuration": f"interval {random.randrange(99)} days"}
        )
        plain(*arguments)

    one._write = crossed  # type: ignore[method-assign]
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    with pytest.raises(AwayError, match="met other commits in each of 3 attempts") as caught:
        append(one, chunk)
    assert caught.value.where == f"table {url}"
    assert next(tries) == 3
    one._write = plain  # type: ignore[method-assign]
    assert append(one, chunk)


def test_each_partition_and_incarnation_has_its_own_chain(url: str) -> None:
    one, reset = outlet(plan(url, KEYED, "id")), outlet(plan(url, KEYED, "id"), "other")
    end(one)
    assert append(one, keyed((1, "a"), end=7))
    assert append(one, keyed((2, "a"), end=90, partition=4))
    assert append(reset, keyed((1, "b"), end=50))
    assert (end(one), end(reset)) == (7, 50)


def test_compaction_a_checkpoint_without_its_log_and_a_vacuum_leave_rows_and_positions(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    one = outlet(plan(url))
    end(one)
    for i in range(4):
        assert append(one, Chunk(PLACE, Offset(3 * i), Offset(3 * i + 3), rows_of([(i, 2)])))
    table = DeltaTable(url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table = DeltaTable(url)
    assert len(table.file_uris()) == 1
    table.create_checkpoint()
    for log in (tmp_path / "table" / "_delta_log").glob("*.json"):
        if int(log.stem) < table.version():
            log.unlink()
    assert end(outlet(plan(url))) == 12
    assert append(one, Chunk(PLACE, Offset(12), Offset(15), rows_of([(4, 2)])))
    assert end(outlet(plan(url))) == 15
    assert shown(url)(Log([])) == [(i, 2) for i in range(5)]


def test_files_of_a_folder_are_on_the_disk_before_rows_may_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, synced = tmp_path / "a table", set[Path]()
    monkeypatch.setattr(module, "_fsync", synced.add)
    one, other = outlet(plan(str(url), KEYED, "id")), outlet(plan(str(url), KEYED, "id"))
    end(one)
    assert append(one, keyed((1, "a"), end=3))
    files, logs = set(url.glob("*.parquet")), set((url / "_delta_log").glob("*.json"))
    assert synced == files | logs | {url, url / "_delta_log", url.parent}
    synced.clear()
    assert append(one, keyed((2, "a"), start=3, end=6))
    assert logs.isdisjoint(synced), "what was synced before is not synced again"
    synced.clear()
    end(other)
    assert append(other, keyed((3, "a"), start=6, end=9))
    assert logs < synced, "a worker that was killed may not have synced its last"
