"""Epochs stand every fault at every point, and break without any one clause of their protocol."""

from __future__ import annotations

import pytest

from falkirk.testing.simulator.epochs.epoch_actors import Scenario
from falkirk.testing.simulator.epochs.epochs import EpochWorld, every_fault, sampled
from falkirk.testing.simulator.epochs.epochs_weakened import WEAKENINGS, broken, lacking

SCENARIOS = {
    "alone": Scenario(drivers=1),
    "two drivers": Scenario(),
    "abandoned": Scenario(abandon=1),
    "not deterministic": Scenario(differ=True),
}
SEEDS = range(300)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(made, id=name, marks=[pytest.mark.slow] if name in ("alone", "abandoned") else [])
        for name, made in SCENARIOS.items()
    ],
)
def test_a_fault_at_every_point(scenario: Scenario) -> None:
    for fault in every_fault(scenario, each=1 if scenario.drivers > 1 else 7):
        EpochWorld((fault,), scenario).run()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_several_faults_and_turns_out_of_order(scenario: Scenario) -> None:
    for seed in SEEDS[:120]:
        sampled(seed, scenario).run()


@pytest.mark.parametrize("name", WEAKENINGS)
def test_without_its_clause_the_protocol_breaks(name: str) -> None:
    with lacking(name) as weakening:
        assert broken(weakening.scenario, SEEDS), f"{weakening.text}: nothing breaks without it"


def test_an_epoch_that_computes_other_rows_is_refused_in_some_runs() -> None:
    ends = [sampled(seed, SCENARIOS["not deterministic"]).run() for seed in SEEDS[:60]]
    assert any(world._diverged for world in ends)
