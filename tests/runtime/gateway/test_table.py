"""The table of answers: it is a function of the topic up to its positions, and outlives its process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from falkirk.errors import DiskError
from falkirk.runtime.gateway.answers import Answer
from falkirk.runtime.gateway.table import Heard, Table

KEEP = 1000


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic-1", KEEP)
    table.add([Heard("k", "d", None, 5), Heard("k", None, b"[1]", 6)], {0: 2, 1: 7})
    table.close()
    table = Table(tmp_path / "t.db", "topic-1", KEEP)
    assert table.positions() == {0: 2, 1: 7}
    assert table.get("k") == Answer(5, "d", b"[1]")
    assert table.get("other") is None


def test_the_table_of_another_topic_is_dropped(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic-1", KEEP)
    table.add([Heard("k", "d", b"[1]", 5)], {0: 1})
    table.close()
    table = Table(tmp_path / "t.db", "topic-2", KEEP)
    assert (table.positions(), table.get("k")) == ({}, None)


def test_a_damaged_table_is_made_again(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic-1", KEEP)
    table.add([Heard("k", "d", b"[1]", 5)], {0: 1})
    table.close()
    (tmp_path / "t.db").write_bytes(b"no database" * 1000)
    table = Table(tmp_path / "t.db", "topic-1", KEEP)
    assert (table.positions(), table.get("k")) == ({}, None)
    table.add([Heard("k", "d", b"[1]", 5)], {0: 1})
    assert table.get("k") == Answer(5, "d", b"[1]")


def test_how_records_are_cut_into_batches_does_not_matter(tmp_path: Path) -> None:
    choice = random.Random(7)
    records = []
    for at in range(3000):
        both = choice.random()
        records.append(
            Heard(
                f"k{choice.randrange(40)}",
                None if both < 0.4 else f"d{at}",
                None if both > 0.6 else b"[%d]" % at,
                at * 3,
            )
        )
    found = []
    for cut in (1, 7, 3000):
        table = Table(tmp_path / f"{cut}.db", "topic", KEEP)
        for first in range(0, len(records), cut):
            batch = records[first : first + cut]
            table.add(batch, {0: first + len(batch)})
        found.append([table.get(f"k{n}") for n in range(40)])
        assert table.positions() == {0: 3000}
    folded: dict[str, Answer] = {}
    for one in records:
        folded[one.key] = folded.get(one.key, Answer(one.at)).with_record(one.digest, one.rows, one.at, KEEP)
    assert found[0] == found[1] == found[2] == [folded[f"k{n}"] for n in range(40)]
    assert len({answer.at for answer in found[0] if answer is not None}) > 10  # keys have been used again


def test_rows_that_come_when_their_key_is_free_again_are_still_those_of_its_receipt(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic", KEEP)
    taken, late = Heard("k", "d", None, 5), Heard("k", None, b"[1]", 5 + 2 * KEEP)
    table.add([taken, late], {0: 2})
    assert table.get("k") == Answer(5, "d", b"[1]")
    assert Answer(5, "d").with_record(None, b"[1]", late.at, KEEP) == Answer(5, "d", b"[1]")
    again = [Heard("k", "other", None, late.at + 1), Heard("k", None, b"[2]", late.at + 2)]
    table.add(again, {0: 4})
    assert table.get("k") == Answer(late.at + 1, "other", b"[2]")


def test_a_table_of_keys_that_count_for_another_time_is_made_again(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic", KEEP)
    table.add([Heard("k", "d", b"[1]", 5)], {0: 1})
    table.close()
    table = Table(tmp_path / "t.db", "topic", 2 * KEEP)  # answers that it has deleted count again
    assert (table.positions(), table.get("k")) == ({}, None)


def test_a_table_that_cannot_be_opened_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "t.db").mkdir()
    with pytest.raises(DiskError, match="the answers cannot be kept"):
        Table(tmp_path / "t.db", "topic", KEEP)


def test_a_table_that_is_damaged_while_it_is_used_is_made_again_at_the_next_start(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic", KEEP)
    table.add([Heard(f"k{n}", "d", b"x" * 500, 5) for n in range(2000)], {0: 1})
    table.close()
    file = tmp_path / "t.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:20_000] + b"\xff" * (len(whole) - 20_000))
    table = Table(file, "topic", KEEP)
    with pytest.raises(DiskError, match="start it again"):
        list(map(table.get, (f"k{n}" for n in range(2000))))
    table.close()
    table = Table(file, "topic", KEEP)
    assert (table.positions(), table.get("k7")) == ({}, None)
    table.add([Heard("k7", "d", b"[1]", 5)], {0: 1})


def test_expired_answers_go_and_no_others(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.db", "topic", KEEP)
    table.add([Heard(f"k{n}", "d", b"[]", n) for n in range(100)], {0: 100})
    assert not table.sweep(50)
    assert [table.get(f"k{n}") is None for n in range(100)] == [n < 50 for n in range(100)]


KILLED = """
import sys
from pathlib import Path
from falkirk.runtime.gateway.table import Heard, Table

table = Table(Path(sys.argv[1]), "topic", 1000)
n = table.positions().get(0, 0)
while True:
    table.add([Heard(f"k{n + i}", "d", b"[]", n + i) for i in range(10)], {0: n + 10})
    n += 10
    print(n, flush=True)
"""


def test_answers_and_positions_are_written_together_though_the_process_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "t.db"
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(place)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(20)][-1]
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        table = Table(place, "topic", 1000)
        end = table.positions()[0]
        assert end >= said
        assert all(table.get(f"k{n}") is not None for n in range(end))
        assert table.get(f"k{end}") is None
        table.close()
