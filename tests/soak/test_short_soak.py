"""A minute of what `make soak` does for hours: both regimes, exchanges and timers, under 9 kill -9 and a zombie."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.soak.soak import Config, Soak

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS, SEED = 9, 3
EACH_KIND = 5
"""As many kills as there are kinds of harm."""
TRANSACTION_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a soak came to."""

    report: dict[str, Any]
    actions: list[dict[str, Any]]
    soak: Soak


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("soak") / "evidence"
    soak = Soak(Config(KILLS, SEED, folder, rate=300, partitions=2), show=lambda progress: None)
    report = soak.go()
    return Outcome(report, [json.loads(line) for line in (folder / "actions.jsonl").open()], soak)


def test_every_update_that_a_reader_saw_is_the_oracle_s(outcome: Outcome) -> None:
    assert outcome.report["found"] == [], f"seed {SEED}; evidence in {outcome.soak.config.folder}"
    assert outcome.report["exact"]
    assert outcome.report["records"] > outcome.report["sent"] > 5_000


def test_it_was_killed_in_every_way(outcome: Outcome) -> None:
    assert outcome.report["kills"] == KILLS
    assert outcome.report["harms"].keys() == {"worker", "supervisor", "run", "broker", "pause"}


def test_an_open_transaction_of_a_dead_worker_holds_readers_up_no_longer_than_the_take_over(outcome: Outcome) -> None:
    healed = [wound for wound in outcome.soak.recoveries.healed if wound.moved]
    seconds = [wound.seconds for wound in healed if wound.kind == "worker in a transaction"]
    assert seconds, outcome.actions
    assert max(seconds) < TRANSACTION_TIMEOUT_S / 2


def test_a_zombie_woke_within_a_transaction_and_changed_nothing(outcome: Outcome) -> None:
    paused = [wound for wound in outcome.soak.recoveries.healed if wound.kind == "pause in a transaction"]
    assert any(wound.moved for wound in paused)
    assert {action["what"] for action in outcome.actions} >= {"pause in a transaction", "wake"}
    assert outcome.report["exact"]


def test_a_passed_soak_leaves_its_report_alone(outcome: Outcome) -> None:
    folder: Path = outcome.soak.config.folder
    assert {path.name for path in folder.iterdir()} == {"report.json", "actions.jsonl"}


def test_avro_dead_letters_two_clusters_and_a_password_change_nothing(tmp_path: Path) -> None:
    soak = Soak(
        Config(EACH_KIND, SEED, tmp_path / "evidence", "daily", rate=300, partitions=2), show=lambda progress: None
    )
    report = soak.go()
    assert report["found"] == [], f"seed {SEED}; evidence in {soak.config.folder}"
    assert report["exact"]
    assert report["harms"].keys() == {"worker", "supervisor", "run", "broker", "pause"}
