"""The compose file's broker and workers, killed, paused and cut off the network; every record is compared with an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.containers.cluster import Containers
from tests.containers.compose import ROOT, services
from tests.containers.trial import SESSION_S, WORKERS, Trial
from tests.ports import free_port

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]

FLOW = "flows.py:mixed"


@pytest.fixture(scope="module")
def trial(kafka_image: str, worker_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One that has been gone through."""
    port = free_port()
    variables = {
        "KAFKA_IMAGE": kafka_image,
        "KAFKA_PORT": str(port),
        "WORKER_IMAGE": worker_image,
        "APP": str(ROOT / "tests" / "soak"),
        "FLOW": FLOW,
        "SESSION_TIMEOUT": f"{SESSION_S}s",
    }
    wanted = services(variables)
    # While it is cut off, what it sent goes unanswered for longer and longer; it must be heard again within its session.
    often = {"KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500"}
    wanted["kafka"] = replace(wanted["kafka"], environment={**wanted["kafka"].environment, **often})
    # Process 1 of its container: its workers' parent has the number that orphans' parents have.
    command = ("run", FLOW, "--until", "end")
    wanted["run"] = replace(wanted[WORKERS[0]], name="run", entrypoint=("falkirk",), command=command)
    containers = Containers(wanted)
    try:
        trial = Trial(containers, port, tmp_path_factory.mktemp("containers"))
        trial.go()
        yield trial
    finally:
        containers.close()


def test_every_update_that_a_reader_saw_is_the_oracle_s(trial: Trial) -> None:
    assert trial.status.verdict
    assert trial.examples == []
    assert not any(trial.status.counts.values())
    assert trial.status.records > trial.sent > 1_000


AWAY = {"worker-2 paused", "worker-1 cut off"}


def test_worker_and_broker_were_killed_paused_and_cut_off(trial: Trial) -> None:
    assert set(trial.wounds) == {"worker-1 killed", *AWAY, "kafka paused", "kafka cut off", "kafka killed"}
    assert all(wound.healed and wound.alone for wound in trial.wounds.values())


@pytest.mark.parametrize("harm", sorted(AWAY))
def test_others_took_the_tasks_of_a_worker_that_was_away(trial: Trial, harm: str) -> None:
    assert trial.wounds[harm].moved


def test_workers_that_are_told_to_stop_leave_cleanly(trial: Trial) -> None:
    assert {name: trial.exits[name] for name in WORKERS} == dict.fromkeys(WORKERS, 0)


def test_a_run_that_is_the_first_process_of_its_container_has_workers(trial: Trial) -> None:
    assert trial.exits["run"] == 0
