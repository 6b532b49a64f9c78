"""results/plot.svg, drawn by matplotlib in the bench's own environment.

python bench/plot.py RESULTS_FOLDER        run by a Python that has matplotlib
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from parts.nexmark.report import PEERS

BLUE, GREY = "#2166ac", "#b0b0b0"
BARS = (BLUE, GREY, "#f4a582", "#7fbf7b")
COLOURS = {"eager": "#2166ac", "lazy": "#b2182b"}


def draw(results: Path) -> str | None:
    """Draw what results there are; None, or why it could not be done."""
    from harness.environments import Missing, python_with

    try:
        python = python_with("matplotlib")
    except Missing as reason:
        return str(reason)
    done = subprocess.run([str(python), __file__, str(results)], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def rates(axes: Any, part: dict[str, Any]) -> None:
    jobs = [(id_, job) for id_, job in reversed(part["jobs"].items()) if "rate" in job]
    middle = [job["rate"]["median"] for _, job in jobs]
    spread = [
        [job["rate"]["median"] - job["rate"]["min"] for _, job in jobs],
        [job["rate"]["max"] - job["rate"]["median"] for _, job in jobs],
    ]
    colours = [BLUE if job["title"].startswith("Falkirk") else GREY for _, job in jobs]
    axes.barh([job["title"] for _, job in jobs], middle, xerr=spread, color=colours, ecolor="#404040")
    axes.set_title("records a second")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}k")
    axes.tick_params(axis="y", labelsize=7)


def latencies(axes: Any, part: dict[str, Any]) -> None:
    for name, style in (("loop", "--"), ("echo", "-"), ("latest", "-")):
        job = part["jobs"][name]
        curve = job["curve"]
        axes.plot(
            curve, [(i + 1) / (len(curve) + 1) for i in range(len(curve))], style, label=job["title"], linewidth=1.2
        )
    axes.set_title(f"latency at {part['rate']:,} records a second")
    axes.set_xlabel("ms; the share of records that took no longer")
    axes.set_xlim(left=0)
    axes.legend(fontsize=7, loc="lower right")


def recoveries(axes: Any, part: dict[str, Any]) -> None:
    for regime, colour in COLOURS.items():
        for kind, style in (("worker", "o-"), ("run", "s--")):
            cases = [c for c in part["cases"] if (c["regime"], c["kind"]) == (regime, kind)]
            keys = [c["keys"] for c in cases]
            axes.plot(keys, [c["all_tasks"]["median"] for c in cases], style, color=colour, label=f"{regime}, {kind}")
            axes.vlines(
                keys, *([c["all_tasks"][end] for c in cases] for end in ("min", "max")), color=colour, linewidth=1
            )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title("kill -9 to the next output of all tasks, s")
    axes.set_xlabel("keys in the state")
    axes.legend(fontsize=7)


def memory(axes: Any, part: dict[str, Any]) -> None:
    samples = [s for s in part["samples"] if s["rss"]]
    records = [s["records"] / 1e6 for s in samples]
    axes.plot(records, [s["rss"] / 2**20 for s in samples], label="worker's memory")
    axes.plot(records, [s["state"] / 2**20 for s in samples], label="state directory")
    axes.plot(records, [sum(s["topics"].values()) / 2**20 for s in samples], label="internal topics")
    axes.set_title("MiB, as the state grows")
    axes.set_xlabel("million keys")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def queries(axes: Any, part: dict[str, Any]) -> None:
    """CPU time of each query of NexMark, and that of the peers."""
    jobs: dict[str, dict[int, float]] = {job: {} for job in ("falkirk", *PEERS)}
    for run in part["runs"]:
        if "cpu" in run:
            jobs[run["job"]][run["query"]] = run["cpu_per_million"]
    shown = {"Falkirk": jobs["falkirk"], **{title: jobs[job] for job, title in PEERS.items() if jobs[job]}}
    numbers, width = list(shown["Falkirk"]), 0.8 / len(shown)
    for i, ((title, found), colour) in enumerate(zip(shown.items(), BARS, strict=False)):
        places = [p + (i + 0.5) * width - 0.4 for p in range(len(numbers))]
        axes.bar(places, [found.get(number, float("nan")) for number in numbers], width, color=colour, label=title)
    axes.set_xticks(range(len(numbers)), [f"q{number}" for number in numbers])
    axes.set_yscale("log")
    axes.set_title("CPU seconds a million records, start included")
    axes.legend(fontsize=7)


def main() -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "bench",
        "svg.fonttype": "none",
    }
    from matplotlib import pyplot as plt

    results = Path(sys.argv[1])
    panels = {"throughput": rates, "latency": latencies, "recovery": recoveries, "memory": memory}
    found = {name: results / f"{name}.json" for name in panels if (results / f"{name}.json").exists()}
    figure, grid = plt.subplots(2, 2, figsize=(11, 7))
    for axes, (name, path) in zip(grid.flat, found.items(), strict=False):
        panels[name](axes, json.loads(path.read_text()))
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    figure.tight_layout()
    figure.savefig(results / "plot.svg", metadata={"Date": None})
    if (path := results / "nexmark.json").exists():
        figure, axes = plt.subplots(figsize=(11, 3.5))
        queries(axes, json.loads(path.read_text()))
        figure.tight_layout()
        figure.savefig(results / "nexmark.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
