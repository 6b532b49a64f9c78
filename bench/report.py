"""RESULTS.md, from whatever results there are.

python bench/report.py      writes it again, and measures nothing
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from falkirk.wording import counted
from harness.command import command
from harness.processes import BENCH
from parts.nexmark.report import nexmark

Part = dict[str, Any]
MIB = 2**20

BESIDE = {"vectors": "bare vectorised", "kstreams-cached": "Kafka Streams cached", "quix": "Quix"}
"""The jobs that Falkirk's rate is divided by."""


def write(results: Path, target: Path) -> None:
    """Make the report."""
    parts = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    writers = {
        "throughput": throughput, "latency": latency, "recovery": recovery, "restore": restore, "memory": memory,
        "spark": spark, "epochs": epochs, "tasks": tasks,
        "nexmark": lambda part: nexmark(part, table),
    }  # fmt: skip
    lines = ["# Results", "", "Written by `make bench`; [README.md](README.md) says what is measured, and how.", ""]
    if (results / "plot.svg").exists():
        lines += [f"![rates, latencies, recovery and memory]({results.name}/plot.svg)", ""]
    for name, writer in writers.items():
        if name in parts:
            lines += [*writer(parts[name]), "", *doubts(parts[name])]
    if (results / "nexmark.svg").exists():
        lines += [f"![CPU time of NexMark's queries]({results.name}/nexmark.svg)", ""]
    lines += machines(parts)
    target.write_text("\n".join(lines).rstrip() + "\n")


def throughput(part: Part) -> list[str]:
    """Rates, and Falkirk's beside the others'."""
    jobs, sizes = part["jobs"], part["sizes"]
    rows = []
    for job in jobs.values():
        if "rate" not in job:
            rows.append([job["title"], "failed", *[""] * 6])
            continue
        rate = job["rate"]
        rows.append(
            [
                job["title"], f"{rate['median']:,}", f"{rate['min']:,} to {rate['max']:,}",
                f"{job['late_rate']['median']:,}" if "late_rate" in job else "–", f"{job['commit_ms']['median']:,.0f}",
                f"{job['cpu_per_million']['median']:.2f}", f"{job['broker_cpu_per_million']['median']:.2f}",
                "yes" if job["faults"] == 0 else f"**{job['faults']:,} keys are wrong**",
            ]
        )  # fmt: skip
    head = ["", "rec/s", "spread", "second half", "commit, ms", "CPU, s/M", "broker's CPU, s/M", "right"]
    lines = [
        f"## Throughput: {sizes['records']:,} bids, {sizes['keys']:,} keys, {counted(sizes['rounds'], 'round')}",
        "",
        *table(head, rows, right=range(1, 7)),
        *(f"\nSkipped: {title} ({reason})." for title, reason in part["skipped"].items()),
    ]
    ratios = [
        [jobs[id_]["title"], *(ratio(jobs, id_, other) for other in BESIDE)]
        for id_ in ("eager", "lazy", "two", "exchange")
        if "rate" in jobs.get(id_, {})
    ]
    crowded = (
        f"One and the same work takes {part['crowding']:.2f} times the processor time on this machine when all its cores do "
        "it at once: by so much the CPU time of two workers may exceed that of one for no doing of theirs."
    )
    beside = table(["rate divided by that of", *BESIDE.values()], ratios, right=range(1, 1 + len(BESIDE)))
    return [*lines, "", *beside, "", crowded]


def ratio(jobs: Part, mine: str, other: str) -> str:
    """How many times as fast."""
    if "rate" not in jobs.get(other, {}):
        return "–"
    return f"{jobs[mine]['rate']['median'] / jobs[other]['rate']['median']:.2f}"


def latency(part: Part) -> list[str]:
    """Medians, and the tail."""
    loop = part["jobs"]["loop"]
    names = {"median": "median", "p90": "p90", "p99": "p99"}
    rows = [
        [
            job["title"],
            *(f"{job[n]['median']:.1f} ({job[n]['min']:.1f} to {job[n]['max']:.1f})" for n in names),
            *(f"{job[n]['median'] / loop[n]['median']:.2f}" for n in ("median", "p99")),
        ]
        for job in part["jobs"].values()
    ]
    head = ["ms", *names.values(), "median / loop", "p99 / loop"]
    return [f"## Latency at {part['rate']:,} records a second", "", *table(head, rows, right=range(1, 6))]


def recovery(part: Part) -> list[str]:
    """By state, regime and what was killed."""
    rows = [
        [
            f"{case['keys']:,}", case["regime"], case["kind"], f"**{case['all_tasks']['median']:.2f}**",
            f"{case['all_tasks']['min']:.2f} to {case['all_tasks']['max']:.2f}", f"{case['first_task']['median']:.2f}",
            f"{case['named']['median']:.2f}",
        ]
        for case in part["cases"]
    ]  # fmt: skip
    head = ["keys", "regime", "kill -9 of", "all tasks, s", "spread", "first task, s", "named, s"]
    title = f"## Recovery at {part['rate']:,} records a second: median of {part['sizes']['kills']} kills"
    return [title, "", *table(head, rows, right=(0, 3, 4, 5, 6))]


def restore(part: Part) -> list[str]:
    """By state, regime and origin."""
    rows = [
        [
            f"{c['keys']:,}",
            c["regime"],
            c["origin"],
            f"{c['seconds']:.2f}",
            f"{c['keys_per_second']:,}",
            f"{c['from_start']:.2f}",
        ]
        for c in part["cases"]
    ]
    head = ["keys", "regime", "from the", "s", "keys/s", "s, start of the processes included"]
    return ["## Restore on a host without a store", "", *table(head, rows, right=(0, 3, 4, 5))]


def memory(part: Part) -> list[str]:
    """Along the way, and at the end."""
    along = [f"{size / MIB:,.0f}" for size in part["rss_along"].values()]
    shares = [f"{float(share) * part['records']:,.0f} keys" for share in part["rss_along"]]
    topics = ", ".join(f"{name} {size / MIB:,.1f}" for name, size in sorted(part["topics"].items()))
    title = f"## Memory and disk, {part['records']:,} records of as many keys, `--memory {part['memory_option']}`"
    disk = (
        f"State directory: {part['state_end'] / MIB:,.0f} MiB at the end, {part['state_max'] / MIB:,.0f} at most. Internal "
        f"topics: {part['topics_end'] / MIB:,.0f} MiB at the end, {part['topics_max'] / MIB:,.0f} at most ({topics})."
    )
    return [
        title,
        "",
        *table(
            ["worker's memory, MiB", *shares, "highest"],
            [["", *along, f"{part['rss_max'] / MIB:,.0f}"]],
            right=range(1, 9),
        ),
        "",
        disk,
    ]


def tasks(part: Part) -> list[str]:
    """By the number of tasks, with an exchange and without."""
    rows = [
        [
            "with an exchange" if c["kind"] == "exchange" else "one stage", f"{c['tasks']:,}", f"{c['start_s']:.1f}",
            f"{c['memory_mib']:,}", f"{c['burst_s']['median']:.2f}", f"{c['burst_cpu_s']['median']:.2f}",
            f"{c['idle_cores']:.2f}", f"{c['recovery_s']:.1f}",
        ]
        for c in part["cases"]
    ]  # fmt: skip
    head = ["", "tasks of a stage", "start, s", "memory, MiB", "burst, s", "burst, CPU s", "idle, cores", "recovery, s"]
    title = f"## One worker with many tasks: bursts of {part['rows']:,} rows"
    return [title, "", *table(head, rows, right=range(1, 8))]


def spark(part: Part) -> list[str]:
    """Rates, and what they are to that of Spark's own connector."""
    jobs, sizes = part["jobs"], part["sizes"]
    rows = [
        [
            job["title"], job["spark"], f"{job['rate']['median']:,}",
            f"{job['rate']['min']:,} to {job['rate']['max']:,}", ratio(jobs, id_, "kafka"),
            f"{job['cpu_per_million']['median']:.2f}",
            "yes" if job["faults"] == 0 else f"**{job['faults']:,} keys are wrong**",
        ]
        for id_, job in jobs.items()
        if "rate" in job
    ]  # fmt: skip
    head = ["", "Spark", "rec/s", "spread", "divided by Spark's own", "CPU, s/M", "right"]
    title = f"## Read and aggregated by Spark: {sizes['scanned']:,} bids, {sizes['keys']:,} keys"
    title += f", {counted(sizes['rounds'], 'round')}"
    skipped = (f"\nSkipped: {name} ({reason})." for name, reason in part["skipped"].items())
    return [title, "", *table(head, rows, right=range(2, 6)), *skipped]


def epochs(part: Part) -> list[str]:
    """What is published a second, and what a stream waits meanwhile."""
    sizes, alone, beside = part["sizes"], part["latency"]["alone"], part["latency"]["beside"]
    bare = part["bare"]
    rows = [
        [title, *paced(found["rate"], bare["rate"]), *paced(found["busy"], bare["busy"])]
        for title, found in (("bare transactional producers", bare), ("an epoch", part["epoch"]))
    ]
    limit = (
        "The limit of the first figure is Spark's sort: between two waves of result partitions no rows come, and all cores "
        "fetch and sort those of the next."
    )
    waits = [
        [title, *(f"{found[share]:.1f}" for share in ("median", "p90", "p99"))]
        for title, found in (("alone", alone), ("beside an epoch", beside))
    ]
    return [
        f"## Published by an epoch: {part['rows']:,} rows, {counted(sizes['rounds'], 'round')}",
        "",
        *table(
            ["", "rows/s", "spread", "/ bare", "while rows come", "spread", "/ bare"],
            rows,
            right=range(1, 7),
        ),
        "",
        limit,
        "",
        f"A stream on the same cores, 1,000 records a second, while Spark counts {sizes['scanned']:,} bids:",
        "",
        *table(["ms", "median", "p90", "p99"], waits, right=range(1, 4)),
    ]


def paced(rate: Part, bare: Part) -> list[str]:
    """A rate, its spread, and its share of a bare one."""
    spread = f"{rate['min']:,} to {rate['max']:,}"
    return [f"{rate['median']:,}", spread, f"{rate['median'] / bare['median']:.2f}"]


def doubts(part: Part) -> list[str]:
    """What makes the figures above doubtful."""
    words = list(dict.fromkeys(part["warnings"]))
    return [f"> {len(part['warnings'])} warnings, the first: {words[0]}", ""] if words else []


def machines(parts: dict[str, Part]) -> list[str]:
    """What each part was measured on; parts of one run share a line."""
    groups: dict[str, list[str]] = {}
    for name, part in parts.items():
        facts = {key: value for key, value in part["machine"].items() if key != "date"}
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items())
        groups.setdefault(words, []).append(f"{name} ({part['machine']['date']})")
    return ["## Machine", "", *(f"- {', '.join(names)}: {words}" for words, names in groups.items())]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Markdown.

    >>> table(["a", "b"], [["x", "1"]], right=[1])
    ['| a | b |', '| --- | ---: |', '| x | 1 |']
    """
    numbers = set(right)
    rule = ["---:" if i in numbers else "---" for i in range(len(head))]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]


@command(__doc__)
def main() -> None:
    """Write RESULTS.md."""
    write(BENCH / "results", BENCH / "RESULTS.md")


if __name__ == "__main__":
    main()
