"""What is done to a run, and when: decided by the seed alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Harm(StrEnum):
    """One way to hurt a running flow. All but the move and the pause are kill -9."""

    WORKER = "worker"
    """A child of the supervisor, be it a worker or the spare."""
    SUPERVISOR = "supervisor"
    """The supervisor alone: its workers must end with it. It is started again at once."""
    RUN = "run"
    """The supervisor and all its workers at the same time; started again at once."""
    BROKER = "broker"
    """A broker, started again on its data; in a cluster, once the others have taken over what it led."""
    MOVE = "move"
    """In a cluster: a broker is stopped and hands its leaders over; started again, it gets back what it is to lead."""
    PAUSE = "pause"
    """SIGSTOP of a worker until its session has ended and others own its tasks; then SIGCONT: a zombie wakes."""


MIX: Mapping[Harm, float] = {
    Harm.WORKER: 0.72,
    Harm.RUN: 0.12,
    Harm.SUPERVISOR: 0.06,
    Harm.BROKER: 0.05,
    Harm.PAUSE: 0.05,
}
"""How often each harm is done, of all."""

SEVERAL: Mapping[Harm, float] = {
    Harm.WORKER: 0.60,
    Harm.RUN: 0.10,
    Harm.SUPERVISOR: 0.05,
    Harm.BROKER: 0.15,
    Harm.MOVE: 0.05,
    Harm.PAUSE: 0.05,
}
"""The same for a cluster of several brokers."""

DOUBLE = 0.12
"""How many are followed by another within a second."""
WITHIN = 0.4
"""How many of those that hit one worker find it within a transaction; the others come when they come."""
HURRY = 0.5
"""How many are followed by the next without waiting for the run to recover; the last of such a row waits for them all."""
CALM_S = (0.1, 2.0)
"""From when to when after a recovery, or in a row after the one before, the next comes, in seconds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One harm, after `calm` seconds in which all went well. With `hurry`, the next does not wait for the recovery."""

    harm: Harm
    calm: float
    hurry: bool
    dice: int
    """Seeds the choice of whom it hits."""
    within: bool = False
    """A worker is to be hurt while it has a transaction open."""

    @property
    def kills(self) -> int:
        return int(is_kill(self.harm))


def is_kill(harm: Harm) -> bool:
    """Whether something is killed with -9."""
    return harm not in (Harm.PAUSE, Harm.MOVE)


def schedule(kills: int, seed: int, mix: Mapping[Harm, float] = MIX) -> list[Fault]:
    """Faults with `kills` kills among them: each kind by its share, and at least once; the order is the seed's.

    >>> faults = schedule(20, seed=7)
    >>> sum(fault.kills for fault in faults), {fault.harm for fault in faults} == set(MIX)
    (20, True)
    """
    rng = random.Random(seed)
    total = sum(share for harm, share in mix.items() if is_kill(harm))
    harms = [harm for harm, share in mix.items() for _ in range(max(1, round(kills * share / total))) if share]
    spare = sum(map(is_kill, harms)) - kills
    for _ in range(spare):
        harms.remove(Harm.WORKER)
    harms += [Harm.WORKER] * -spare
    rng.shuffle(harms)
    faults: list[Fault] = []
    for harm in harms:
        double = rng.random() < DOUBLE
        calm = rng.uniform(0.0, 1.0) if double else rng.uniform(*CALM_S)
        if double and faults:
            faults[-1] = replace(faults[-1], hurry=True)
        within = harm in (Harm.WORKER, Harm.PAUSE) and rng.random() < WITHIN
        faults.append(Fault(harm, calm, rng.random() < HURRY, rng.randrange(1 << 30), within))
    return faults
