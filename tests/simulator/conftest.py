"""How many cases the long explorations have, and what is said of sampled runs that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import pytest

from falkirk.testing.simulator.explore import Failure, Kinds, attempt, sample
from falkirk.testing.simulator.toy import Toy

EACH = 4

Some: TypeAlias = Callable[[Iterable[Any]], list[Any]]


@pytest.fixture
def some(request: pytest.FixtureRequest) -> Some:
    """Each fourth of the cases of a long exploration. With `--every-case` all of them, as `make soak` has them: ten minutes
    on two cores."""
    each = 1 if request.config.getoption("every_case") else EACH
    return lambda cases: list(islice(cases, 0, None, each))


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Production's code says nothing below an error: thousands of runs would."""
    with caplog.at_level(logging.ERROR, "falkirk"):
        yield


def failures(run: Callable[[int], Failure | None], seeds: Iterable[int]) -> list[str]:
    """What broke in the sampled runs with these seeds, each with its seed."""
    return [f"{seed}: {failure}" for seed in seeds if (failure := run(seed)) is not None]


def any_of(kinds: Iterable[Kinds]) -> Kinds:
    """All faults of these kinds at a point. With `every_point(…, each=1)` each point gets others of them."""
    return lambda worker, at: (fault for kind in kinds for fault in kind(worker, at))


def mixed_run(make: Callable[[], Toy], seed: int, *, points: int, kinds: Sequence[Kinds]) -> Failure | None:
    """A run with sampled faults of these kinds, at a broker that is more or less late. What broke, if anything did."""
    plan = sample(seed, points=points, kinds=kinds)
    return attempt(make, plan, seed=seed, rate=(0.0, 0.1, 0.4)[seed % 3])
