"""A host that has no store of its tasks: how fast their state comes from elsewhere.

    version     from the copies of the last version, and the log since then
    changelog   the copies are gone too: the changelog from its start (eager alone; nothing else holds a lazy state)

The run is killed, its stores are deleted, and it is started again under its old identity, so that no session has to end.
"""

from __future__ import annotations

import shutil
import time

from harness.setting import Results, Setting
from parts.recovery import REGIMES
from workload.steady import Steady

ORIGINS = {"eager": ("version", "changelog"), "lazy": ("version",)}


def measure(setting: Setting) -> Results:
    """Both regimes, all sizes of state, wherever it comes from."""
    states, screen = setting.sizes.states, setting.screen
    cases: list[Results] = []
    with screen.part(len(states) * sum(map(len, ORIGINS.values()))):
        for keys in states:
            for regime in REGIMES:
                screen.doing(f"{regime}, {keys:,} keys: filling the state")
                rest = setting.rest()
                steady = Steady(setting, regime, keys)
                for origin in ORIGINS[regime]:
                    screen.doing(f"{regime}, {keys:,} keys: restoring from the {origin}")
                    case = {"regime": regime, "keys": keys, "origin": origin, **restore(steady, origin), **rest}
                    cases.append(case)
                    screen.done(
                        f"{regime:<6}{keys:>11,} keys   from the {origin:<10}{case['seconds']:7.2f} s, "
                        f"[bold]{case['keys_per_second']:>11,}[/] keys/s"
                    )
                steady.close()
    return {"cases": cases}


def restore(steady: Steady, origin: str) -> Results:
    """Once: seconds from the new names to the first output of the last task. Raises Failed."""
    steady.app.kill_all()
    for store in steady.app.stores():
        shutil.rmtree(store)
    if origin == "changelog":
        shutil.rmtree(steady.app.state / "checkpoints")
    began = time.time()
    steady.app.start()
    healed = steady.healed(began)
    seconds = healed.last - healed.named
    return {
        "seconds": round(seconds, 3),
        "from_start": round(healed.last, 3),
        "keys_per_second": round(steady.keys / seconds),
    }
