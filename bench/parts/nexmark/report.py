"""NexMark's part of RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

PEERS = {"flink": "Flink SQL", "kstreams": "Kafka Streams", "quix": "Quix Streams"}
"""What the jobs beside Falkirk are called."""
SLOWEST, LEAST = 3, 0.1
"""How many of the slowest queries are taken apart; and CPU seconds for a million records that are worth a word."""


def nexmark(part: dict[str, Any], table: Any) -> list[str]:
    """CPU time of each query, beside the peers'."""
    mine, starts, working = _runs(part, "falkirk"), _starts(part), _per_million(part)
    peers = {job: found for job in PEERS if (found := _runs(part, job))}
    rows = []
    for number, run in mine.items():
        rows.append(
            [
                f"q{number}", f"{run['records']:,}", f"{run['cpu_per_million']:.1f}",
                f"{working[number]:.1f}",
                "–" if run["rate"] is None else f"{run['rate']:,}",
                *(cell for found in peers.values() for cell in _beside(found.get(number), run, starts)),
                "yes" if not run["faults"] else f"**{run['faults']:,} rows are wrong**",
            ]
        )  # fmt: skip
    head = ["", "records", "CPU, s/M", "without the start", "rec/s"]
    for job in peers:
        head += [f"{PEERS[job]}, s/M", "/ Falkirk", "without the starts"]
    lines = [
        f"## NexMark: {part['events']:,} events, {part['partitions']} partition, a commit every {part['step']}",
        "",
        *table([*head, "right"], rows, right=range(1, len(head))),
        "",
        _words(starts),
    ]
    for job, found in peers.items():
        if mean := _compared(PEERS[job], found, mine, starts):
            lines += ["", f"Geometric mean over {mean}."]
    if again := part.get("again"):
        lines += ["", f"Measured again later: {', '.join(f'q{number} ({when})' for number, when in again.items())}."]
    lines += [f"\nSkipped: {why}." for why in part["skipped"]]
    return lines + _where(part, table)


def slowest(part: dict[str, Any]) -> list[int]:
    """The queries that take Falkirk the most CPU time for a record, without the start."""
    working = _per_million(part)
    return sorted(working, key=lambda number: -working[number])[:SLOWEST]


def _where(part: dict[str, Any], table: Any) -> list[str]:
    """What the slowest queries consist of."""
    if not (where := part.get("where")):
        return []
    working, rows = _per_million(part), []
    for number, found in where["queries"].items():
        whole, circuit = working[int(number)], found["circuit"]
        most = [f"{what} {seconds:.1f}" for what, seconds in found["operators"].items() if seconds >= LEAST]
        rows.append([f"q{number}", f"{whole:.1f}", f"{circuit:.1f}", f"{whole - circuit:.1f}", ", ".join(most)])
    head = ["", "CPU, s/M", "in the circuit", "beside it", "of the circuit"]
    words = (
        "Where the time of the slowest goes. Beside the circuit are the clients of Kafka, and the digest, the changelog and "
        f"the record of each step. The circuit is measured alone, over {where['events']:,} events in steps of "
        f"{where['step']:,}."
    )
    return ["", words, "", *table(head, rows, right=range(1, 4))]


def measured_again(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The results with some queries measured later, in the place of the earlier ones. It is told which they are.

    >>> runs = [{"query": 0, "cpu": 1.0}, {"query": 7, "cpu": 9.0}]
    >>> later = {"runs": [{"query": 7, "cpu": 5.0}], "machine": {"commit": "abc", "date": "today"}}
    >>> measured_again({"runs": runs}, later)
    {'runs': [{'query': 0, 'cpu': 1.0}, {'query': 7, 'cpu': 5.0}], 'again': {'7': 'commit abc, today'}}
    """
    later = {run["query"] for run in found["runs"]}
    runs = [run for run in before["runs"] if run["query"] not in later] + found["runs"]
    when = f"commit {found['machine']['commit']}, {found['machine']['date']}"
    again = before.get("again", {}) | {str(number): when for number in sorted(later)}
    return {**before, "runs": sorted(runs, key=lambda run: run["query"]), "again": again}


def _runs(part: dict[str, Any], job: str) -> dict[int, dict[str, Any]]:
    """The runs of a job that came to their end, by query."""
    return {run["query"]: run for run in part["runs"] if run["job"] == job and "cpu" in run}


def _starts(part: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of a start, by job."""
    return {job: start["cpu"] for job, start in part["starts"].items()}


def _per_million(part: dict[str, Any]) -> dict[int, float]:
    """CPU seconds of Falkirk for a million records without the start, by query."""
    starts = _starts(part)
    return {n: _working(run, starts) / run["records"] * 1e6 for n, run in _runs(part, "falkirk").items()}


def _working(run: dict[str, Any], starts: Mapping[str, float]) -> float:
    """CPU seconds of a run beyond those of a start, and at least a hundredth."""
    return max(0.01, run["cpu"] - starts.get(run["job"], 0.0))


def _ratios(peer: dict[str, Any], mine: dict[str, Any], starts: Mapping[str, float]) -> tuple[float, float]:
    """How many times the CPU time of Falkirk a peer takes: of the whole run, and without the starts."""
    return peer["cpu_per_million"] / mine["cpu_per_million"], _working(peer, starts) / _working(mine, starts)


def _beside(peer: dict[str, Any] | None, mine: dict[str, Any], starts: Mapping[str, float]) -> tuple[str, ...]:
    """CPU time of a peer, and its ratios; wrong rows are nothing to compare with."""
    if peer is None:
        return "–", "–", "–"
    used = f"{peer['cpu_per_million']:.1f}"
    if peer["faults"]:
        return f"{used}, **{peer['faults']:,} rows are wrong**", "–", "–"
    return used, *(f"{ratio:.1f}" for ratio in _ratios(peer, mine, starts))


def _compared(
    title: str, peer: dict[int, dict[str, Any]], mine: dict[int, dict[str, Any]], starts: Mapping[str, float]
) -> str:
    """The geometric means over the queries that both have right; empty if there is none.

    >>> right, wrong = (dict(job="quix", cpu=4.0, cpu_per_million=4.0, faults=n) for n in (0, 1))
    >>> mine = dict(job="falkirk", cpu=3.0, cpu_per_million=2.0, faults=0)
    >>> _compared("Quix", {1: right, 2: wrong}, {1: mine, 2: mine}, {"quix": 3.0, "falkirk": 2.0})
    '1 queries: Quix takes 2.0 times as much CPU time, and 1.0 times without the starts'
    """
    both = [
        _ratios(peer[number], run, starts)
        for number, run in mine.items()
        if number in peer and not peer[number]["faults"] and not run["faults"]
    ]
    if not both:
        return ""
    whole, working = (_mean(ratios) for ratios in zip(*both, strict=True))
    words = f"{whole:.1f} times as much CPU time, and {working:.1f} times without the starts"
    return f"{len(both)} queries: {title} takes {words}"


def _words(starts: Mapping[str, float]) -> str:
    each = ", ".join(f"{PEERS.get(job, 'Falkirk')} {cpu:.1f} s" for job, cpu in starts.items())
    return (
        "CPU seconds of the whole run for a million records read. A ratio above 1 means that the peer takes more. A start, "
        f"which is a run over a few records, takes: {each}."
    )


def _mean(values: Sequence[float]) -> float:
    """The geometric mean.

    >>> round(_mean([1, 4]), 6)
    2.0
    """
    return exp(sum(map(log, values)) / len(values))
