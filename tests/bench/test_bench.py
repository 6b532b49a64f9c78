"""The arithmetic behind the figures: what a rate is, what is right, and which output counts as recovered."""

from __future__ import annotations

import doctest
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from falkirk.checkpoint.ids import Millis, Nonce, OwnerId, Step
from falkirk.checkpoint.records import Named, OutputRange, StepRecord, encode

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A script of the bench, imported as it is when it runs."""
    monkeypatch.delitem(sys.modules, request.param, raising=False)  # another folder's, of the same name
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCH)
    yield importlib.import_module(request.param)
    for name in set(sys.modules) - before:  # their names are short: another folder's scripts may have the same
        if BENCH in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]


@pytest.mark.parametrize("module", ["bids", "nexmark_report", "outputs", "report", "setting"], indirect=True)
def test_the_examples_are_true(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


def step(number: int, nonce: str, outputs: int = 1) -> bytes:
    ranges = (OutputRange("out", 0, outputs),) if outputs else ()
    return encode(StepRecord("t/0", Step(number), Nonce(nonce), OwnerId("w"), Millis(0), (), ranges, ""))


@pytest.mark.parametrize("module", ["witness"], indirect=True)
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


@pytest.mark.parametrize("module", ["outputs"], indirect=True)
def test_a_job_of_several_stages_begins_with_the_first_round_that_read_something(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [Told(0, 0, 1_000, 0), Told(0, 1, 1_100, 7), Told(0, 2, 1_200, 9)]
    second = [Told(1, 0, 1_000, 0), Told(1, 1, 1_100, 5)]
    monkeypatch.setattr(module, "committed", lambda *_: iter([first, second]))
    assert module.first_round("broker", "steps", 2) == (1_100, 12)


@pytest.mark.parametrize("module", ["nexmark"], indirect=True)
def test_rows_of_nexmark_that_are_too_many_or_missing_are_counted(module: ModuleType) -> None:
    bids = pl.DataFrame({"auction": [123, 246, 1], "price": [5, 7, 9]})
    right = pl.DataFrame({"price": [7, 5], "auction": [246, 123]})
    assert module.faults(2, right, {"bid": bids}) == 0
    assert module.faults(2, right[:1], {"bid": bids}) == 1
    assert module.faults(2, pl.concat([right, right[:1]]), {"bid": bids}) == 1
    assert module.faults(2, pl.DataFrame(), {"bid": bids}) == 2


@pytest.mark.parametrize("module", ["nexmark_report"], indirect=True)
def test_the_report_of_nexmark_divides_the_reference_by_what_was_measured(module: ModuleType) -> None:
    run = {
        "query": 2,
        "job": "falkirk",
        "records": 920_000,
        "cpu": 2.76,
        "cpu_per_million": 3.0,
        "rate": 1,
        "faults": 0,
    }
    part = {
        "events": 1,
        "partitions": 1,
        "step": "1s",
        "starts": {"falkirk": {"cpu": 0.92}},
        "runs": [run],
        "skipped": [],
    }
    lines = module.nexmark(part, lambda head, rows, right: [" ".join(row) for row in rows])
    assert "q2 920,000 3.0 2.0 1 – 6 2.5 2.0 yes" in lines
    assert lines[-1].endswith("2.0 times as much.")
