"""From kill -9 to the next committed output, as a read_committed reader sees it, by the number of keys in the state.

worker   a worker of `falkirk run` is killed; its supervisor has a warm spare
run      the supervisor and all its processes are killed, and `falkirk run` is started again at once
"""

from __future__ import annotations

import random
import time

from harness.setting import Results, Setting, summary
from workload.steady import RATE, Healed, Steady

REGIMES = ("eager", "lazy")
REST_S = (2.0, 6.0)
"""Between two kills: a new spare is ready by then, and the next kill meets the versions (one in 10 s) at any moment."""


def measure(setting: Setting) -> Results:
    """Both regimes, all sizes of state."""
    sizes, screen = setting.sizes, setting.screen
    cases: list[Results] = []
    chance = random.Random(sizes.kills)
    with screen.part(len(sizes.states) * len(REGIMES) * 2):
        for keys in sizes.states:
            for regime in REGIMES:
                title = f"{regime}, {keys:,} keys"
                screen.doing(f"{title}: filling the state")
                rest = setting.rest()
                steady = Steady(setting, regime, keys)
                for kind in ("worker", "run"):
                    screen.doing(f"{title}: kill -9 of the {kind}, {sizes.kills} times")
                    found = [kill(steady, kind, chance) for _ in range(sizes.kills)]
                    case = {"regime": regime, "keys": keys, "kind": kind, **of(found), **rest}
                    cases.append(case)
                    screen.done(sentence(case))
                steady.close()
    return {"rate": RATE, "cases": cases}


def kill(steady: Steady, kind: str, chance: random.Random) -> Healed:
    """One kill, and what came of it. Raises Failed."""
    time.sleep(chance.uniform(*REST_S))
    harm = time.time()
    if kind == "worker":
        steady.app.kill_worker()
    else:
        steady.app.kill_all()
        steady.app.start()
    return steady.healed(harm)


def of(found: list[Healed]) -> Results:
    """What all kills of one kind come to: seconds until all tasks, until the first, and until a name."""
    return {
        "all_tasks": summary([h.last for h in found], 3),
        "first_task": summary([h.first for h in found], 3),
        "named": summary([h.named for h in found], 3),
        "times": [round(h.last, 3) for h in found],
    }


def sentence(case: Results) -> str:
    """A case in a line."""
    return (
        f"{case['regime']:<6}{case['keys']:>11,} keys   kill -9 of the {case['kind']:<7}"
        f"all tasks [bold]{case['all_tasks']['median']:.2f}[/] s (to {case['all_tasks']['max']:.2f}), "
        f"first {case['first_task']['median']:.2f} s, named {case['named']['median']:.2f} s"
    )
