"""The arithmetic behind the figures: what a rate is, what is right, and which output counts as recovered."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from falkirk.checkpoint.ids import Millis, Nonce, OwnerId, Step
from falkirk.checkpoint.records import Named, OutputRange, StepRecord, encode

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the bench, imported as it is when a script of the bench runs."""
    monkeypatch.delitem(sys.modules, request.param, raising=False)  # another folder's, of the same name
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module(request.param)
    for name in set(sys.modules) - before:  # their names are short: another folder's scripts may have the same
        if BENCH in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]


@pytest.mark.parametrize(
    "module", ["harness.setting", "parts.nexmark.report", "report", "workload.bids", "workload.outputs"], indirect=True
)
def test_the_examples_are_true(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


def step(number: int, nonce: str, outputs: int = 1) -> bytes:
    ranges = (OutputRange("out", 0, outputs),) if outputs else ()
    return encode(StepRecord("t/0", Step(number), Nonce(nonce), OwnerId("w"), Millis(0), (), ranges, ""))


@pytest.mark.parametrize("module", ["workload.witness"], indirect=True)
def test_an_ownership_is_seen_by_its_first_output_in_whichever_order(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = module.Witness()
    witness.record(step(0, "a"), "t/0", 1.0)
    witness.output(b"t/0 0 0", 1.1)
    witness.output(b"t/0 0 1", 1.2)
    witness.output(b"t/0 1 0", 2.0)  # of the old ownership still, and read after the new name
    witness.record(encode(Named(Nonce("b"), OwnerId("w"))), "t/0", 2.1)
    witness.record(step(1, "a"), "t/0", 2.2)
    witness.record(step(2, "b", outputs=0), "t/0", 2.3)
    witness.output(b"t/0 3 0", 2.4)
    witness.record(step(3, "b"), "t/0", 2.5)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(s["nonce"], s.get("named"), s.get("output")) for s in said] == [
        ("a", None, 1.1),
        ("b", 2.1, None),
        ("b", None, 2.4),
    ]


class Told:
    """A record of the steps topic."""

    def __init__(self, task: int, number: int, clock: int, rows: int) -> None:
        record = StepRecord(f"t/{task}", Step(number), Nonce("n"), OwnerId("w"), Millis(clock), (), (), "", rows)
        self._value = encode(record)

    def value(self) -> bytes:
        return self._value


@pytest.mark.parametrize("module", ["workload.outputs"], indirect=True)
def test_a_job_of_several_stages_begins_with_the_first_round_that_read_something(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [Told(0, 0, 1_000, 0), Told(0, 1, 1_100, 7), Told(0, 2, 1_200, 9)]
    second = [Told(1, 0, 1_000, 0), Told(1, 1, 1_100, 5)]
    monkeypatch.setattr(module, "committed", lambda *_: iter([first, second]))
    assert module.first_round("broker", "steps", 2) == (1_100, 12)


@pytest.mark.parametrize("module", ["parts.nexmark.measurement"], indirect=True)
def test_rows_of_nexmark_that_are_too_many_or_missing_are_counted(module: ModuleType) -> None:
    bids = pl.DataFrame({"auction": [123, 246, 1], "price": [5, 7, 9]})
    right = pl.DataFrame({"price": [7, 5], "auction": [246, 123]})
    assert module.faults(2, right, {"bid": bids}) == 0
    assert module.faults(2, right[:1], {"bid": bids}) == 1
    assert module.faults(2, pl.concat([right, right[:1]]), {"bid": bids}) == 1
    assert module.faults(2, pl.DataFrame(), {"bid": bids}) == 2


def ran(job: str, per_million: float, faults: int = 0, query: int = 2) -> dict[str, Any]:
    """A run of a query of NexMark."""
    return {
        "query": query,
        "job": job,
        "records": 920_000,
        "cpu": per_million * 0.92,
        "cpu_per_million": per_million,
        "rate": 1,
        "faults": faults,
    }


def report(module: ModuleType, *runs: dict[str, Any]) -> list[str]:
    """The part of the report, without the marks of a table."""
    part = {
        "events": 1,
        "partitions": 1,
        "step": "1s",
        "starts": {job: {"cpu": 0.92} for job in ("falkirk", "flink", "kstreams")},
        "runs": list(runs),
        "skipped": [],
    }
    return module.nexmark(part, lambda head, rows, right: [" ".join(row) for row in rows])


@pytest.mark.parametrize("module", ["parts.nexmark.report"], indirect=True)
def test_the_report_of_nexmark_has_columns_for_the_peers_that_ran(module: ModuleType) -> None:
    failed = {"query": 0, "job": "kstreams", "records": 920_000, "failed": "it took too long"}
    lines = report(
        module,
        ran("falkirk", 3.0),
        ran("flink", 6.0),
        ran("kstreams", 9.0, faults=7),
        ran("falkirk", 2.0, query=0),
        ran("flink", 8.0, query=0),
        failed,
    )
    assert "q2 920,000 3.0 2.0 1 6.0 2.0 2.5 9.0, **7 rows are wrong** – – yes" in lines
    assert "q0 920,000 2.0 1.0 1 8.0 4.0 7.0 – – – yes" in lines
    mean = "Flink SQL takes 2.8 times as much CPU time, and 4.2 times without the starts"
    assert f"Geometric mean over 2 queries: {mean}." in lines
    assert not any("Kafka Streams takes" in line for line in lines)


@pytest.mark.parametrize("module", ["parts.nexmark.measurement"], indirect=True)
def test_each_peer_of_nexmark_has_a_name_and_queries_that_there_are(module: ModuleType) -> None:
    peers = importlib.import_module("parts.nexmark.peers")
    assert set(peers.CAN) == set(peers.PEERS)
    for numbers in peers.CAN.values():
        assert numbers <= set(module.queries.QUERIES)
        assert numbers <= set(module.answers.ANSWERS)


@pytest.mark.parametrize("module", ["harness.broker"], indirect=True)
def test_what_is_deleted_while_disk_space_is_counted_counts_or_not(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version-1.tmp").mkdir()
    (tmp_path / "version-1.tmp" / "b").write_bytes(b"b")
    stat = Path.stat

    def going(path: Path, **options: Any) -> os.stat_result:
        found = stat(path, **options)
        if path.name == "b":
            shutil.rmtree(path.parent)
        return found

    monkeypatch.setattr(Path, "stat", going)
    assert module.disk_bytes(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_readme_tells_what_each_file_beside_it_is() -> None:
    table = (BENCH / "README.md").read_text().partition("## Files")[2]
    told = set(re.findall(r"`([\w.]+?/?)`", table))
    there = {f"{path.name}/" if path.is_dir() else path.name for path in BENCH.iterdir() if path.name[0] not in "._"}
    assert there - told == {"README.md", "RESULTS.md"}


LAYERS = ["harness", "workload", "parts"]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_folder_imports_only_folders_below_it(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    for file in (BENCH / layer).rglob("*.py"):
        for line in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [line.module or ""] if isinstance(line, ast.ImportFrom) else []
            names += [name.name for name in line.names] if isinstance(line, ast.Import) else []
            assert not [name for name in names if name.partition(".")[0] in above], file


TOOLS = sorted(path.name for path in BENCH.glob("*.py") if path.name not in ("plot.py", "run.py"))
"""plot.py is run by a Python that has little more than matplotlib."""


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_starts_and_its_help_says_what_it_measures(tool: str) -> None:
    said = subprocess.run([sys.executable, BENCH / tool, "--help"], capture_output=True, text=True, check=True).stdout
    assert f"python bench/{tool}" in said
    first = ast.get_docstring(ast.parse((BENCH / tool).read_text(encoding="utf-8")))
    assert first
    assert first.partition("\n")[0] in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "iterate.py --edges 1000 --loop reach",
        "joins.py --sizes 2000",
        "nexmark_steps.py --events 1000 --step 500 --only 0 --only 13 --operators",
        "sessions.py --size 2000",
        "sizes.py --size 2000",
        "upkeep.py --tasks 2 --rounds 1 --latency 1",
    ],
)
def test_a_tool_without_a_broker_measures(arguments: str) -> None:
    tool, *more = arguments.split()
    done = subprocess.run([sys.executable, BENCH / tool, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
