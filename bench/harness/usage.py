"""CPU time of processes over the time of a measurement, whenever that turns out to have begun and ended.

A thread notes CPU times some fifty times a second; what was used between two moments is then read off.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

import psutil

PERIOD = 0.02


class Usage:
    """Follows groups of processes from its start to its stop. Times are ms since 1970, CPU times seconds."""

    def __init__(self, groups: Mapping[str, Callable[[], Iterable[int]]]) -> None:
        self._groups = groups
        self._last: dict[str, dict[int, float]] = {name: {} for name in groups}
        self._times: list[float] = []
        self._used: dict[str, list[float]] = {name: [] for name in [*groups, "machine"]}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def used(self, group: str, begin: float, end: float) -> float:
        """CPU seconds of a group between two moments; "machine" is everything that ran."""
        return self._at(group, end) - self._at(group, begin)

    def _at(self, group: str, moment: float) -> float:
        i = min(max(1, bisect_left(self._times, moment)), len(self._times) - 1)
        (a, b), (x, y) = self._times[i - 1 : i + 1], self._used[group][i - 1 : i + 1]
        share = (moment - a) / (b - a)
        return x + (y - x) * min(1.0, max(0.0, share))

    def _follow(self) -> None:
        known: dict[int, psutil.Process] = {}
        while not self._stop.wait(PERIOD):
            self._times.append(time.time() * 1000)
            for name, pids in self._groups.items():
                last = self._last[name]
                for pid in pids():
                    try:
                        times = known.setdefault(pid, psutil.Process(pid)).cpu_times()
                    except psutil.NoSuchProcess:  # what it used until now stays counted
                        continue
                    last[pid] = times.user + times.system
                self._used[name].append(sum(last.values()))
            whole = psutil.cpu_times()
            self._used["machine"].append(sum(whole) - whole.idle - getattr(whole, "iowait", 0.0))

    def __enter__(self) -> Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
