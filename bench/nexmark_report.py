"""NexMark's part of RESULTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any

PEERS = {"flink": "Flink SQL", "kstreams": "Kafka Streams", "quix": "Quix Streams"}
"""What the jobs beside Falkirk are called."""
FLINK: dict[int, tuple[float, float]] = {
    0: (10, 14), 1: (11, 11), 2: (6, 6), 3: (57, 73), 4: (28, 35), 5: (17, 19), 7: (99, 99), 8: (52, 77), 9: (132, 156),
    11: (22, 25), 12: (13, 25), 13: (26, 45), 14: (13, 13), 15: (22, 25), 16: (48, 48), 17: (20, 25), 18: (39, 39),
    19: (36, 36), 20: (70, 70), 22: (12, 14),
}  # fmt: skip
"""Reference: CPU seconds a million records of Flink SQL 2.3, RocksDB, one core, least and most of several runs on
2026-11-23, job start included. Queries 3 and 8 read 80,000 records."""
STREAMS: dict[int, float] = {1: 7, 2: 2.5, 3: 62, 5: 18, 7: 10, 8: 40}
"""Reference: the same of Kafka Streams 4.1, EOS v2, written by hand."""


def nexmark(part: dict[str, Any], table: Any) -> list[str]:
    """CPU time of each query, beside the peers'."""
    mine = _runs(part, "falkirk")
    peers = {title: found for job, title in PEERS.items() if (found := _runs(part, job))}
    start = part["starts"].get("falkirk", {}).get("cpu", 0.0)
    rows = []
    for number, run in mine.items():
        low, high = FLINK.get(number, (0, 0))
        rows.append(
            [
                f"q{number}", f"{run['records']:,}", f"{run['cpu_per_million']:.1f}",
                f"{max(0.0, run['cpu'] - start) / run['records'] * 1e6:.1f}",
                "–" if run["rate"] is None else f"{run['rate']:,}",
                *(cell for found in peers.values() for cell in _beside(found.get(number), run)),
                "–" if not high else f"{low:g}" if low == high else f"{low:g} to {high:g}",
                f"{STREAMS[number]:g}" if number in STREAMS else "–",
                f"{(low + high) / 2 / run['cpu_per_million']:.1f}" if high else "–",
                "yes" if not run["faults"] else f"**{run['faults']:,} rows are wrong**",
            ]
        )  # fmt: skip
    head = [
        "", "records", "CPU, s/M", "without the start", "rec/s",
        *(word for title in peers for word in (f"{title}, s/M", "/ Falkirk")), "Flink SQL, reference",
        "Kafka Streams, reference", "reference of Flink / Falkirk", "right",
    ]  # fmt: skip
    lines = [
        f"## NexMark: {part['events']:,} events, {part['partitions']} partition, a commit every {part['step']}",
        "",
        *table(head, rows, right=range(1, len(head) - 1)),
        "",
        _words(start),
    ]
    means = [_compared(title, found, mine) for title, found in peers.items()]
    if both := [run["cpu_per_million"] / sum(FLINK[n]) * 2 for n, run in mine.items() if n in FLINK]:
        means.append(f"{len(both)} queries: Flink's reference takes {1 / _mean(both):.1f} times as much")
    lines += [line for mean in means if mean for line in ("", f"Geometric mean over {mean}.")]
    lines += [f"\nSkipped: {why}." for why in part["skipped"]]
    return lines


def _runs(part: dict[str, Any], job: str) -> dict[int, dict[str, Any]]:
    """The runs of a job that came to their end, by query."""
    return {run["query"]: run for run in part["runs"] if run["job"] == job and "cpu" in run}


def _beside(peer: dict[str, Any] | None, mine: dict[str, Any]) -> tuple[str, str]:
    """CPU time of a peer, and how many times that of Falkirk it is; wrong rows are nothing to compare with."""
    if peer is None:
        return "–", "–"
    used = f"{peer['cpu_per_million']:.1f}"
    if peer["faults"]:
        return f"{used}, **{peer['faults']:,} rows are wrong**", "–"
    return used, f"{peer['cpu_per_million'] / mine['cpu_per_million']:.1f}"


def _compared(title: str, peer: dict[int, dict[str, Any]], mine: dict[int, dict[str, Any]]) -> str:
    """The geometric mean over the queries that both have right; empty if there is none.

    >>> right, wrong = {"cpu_per_million": 4.0, "faults": 0}, {"cpu_per_million": 1.0, "faults": 1}
    >>> _compared("Quix", {1: right, 2: wrong}, {1: {"cpu_per_million": 2.0, "faults": 0}, 2: right})
    '1 queries: Quix takes 2.0 times as much'
    """
    both = [
        peer[number]["cpu_per_million"] / run["cpu_per_million"]
        for number, run in mine.items()
        if number in peer and not peer[number]["faults"] and not run["faults"]
    ]
    return f"{len(both)} queries: {title} takes {_mean(both):.1f} times as much" if both else ""


def _words(start: float) -> str:
    return (
        f"CPU seconds of the whole run for a million records read; the start takes {start:.1f} s of CPU. A ratio above 1 "
        "means that the peer takes more. References were measured on 2026-11-23 in another run on such a machine, Flink "
        "with checkpoints of 100 ms to 1 s; they are no part of this run."
    )


def _mean(values: Sequence[float]) -> float:
    """The geometric mean.

    >>> round(_mean([1, 4]), 6)
    2.0
    """
    return exp(sum(map(log, values)) / len(values))
