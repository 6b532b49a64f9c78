"""A minute of what `python -m tests.faults.trial` does for an hour, for each regime."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.faults.frames import Api
from tests.faults.trial import batch, stream

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

FAULTS, SEED = 100, 3


@pytest.mark.parametrize("regime", ["eager", "lazy", "batch"])
def test_outputs_are_exact_though_requests_and_answers_are_held_and_lost(tmp_path: Path, regime: str) -> None:
    said: list[str] = []
    run = batch if regime == "batch" else partial(stream, regime)
    outcome = run(FAULTS, SEED, tmp_path / regime, show=said.append)
    assert outcome.wrong == [], f"seed {SEED}; evidence in {tmp_path}; {said}"
    assert outcome.faults.total() >= FAULTS
    assert {"EndTxn", "AddPartitionsToTxn", "Produce"} <= {api for api, _ in outcome.faults}
    assert outcome.harms
    assert outcome.records > 500
    entries = [json.loads(line) for line in (tmp_path / regime / "faults.jsonl").open()]
    late = [entry for entry in entries if entry["what"] == "answered" and entry["request"]["api"] == Api.END_TXN]
    assert any(entry["error"] for entry in late), "no held EndTxn met another epoch"
