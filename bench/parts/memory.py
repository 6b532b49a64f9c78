"""What a worker takes while a state grows: memory of the process, disk of its state, disk of the app's own topics.

Every record is of a key of its own, so as many keys as records are in the state at the end; the worker is given a block
cache and write buffers that are far smaller. The output topic's length tells how far it is.
"""

from __future__ import annotations

import shutil
import time

import psutil

from harness.broker import disk_bytes
from harness.processes import Failed
from harness.setting import Results, Setting
from workload import bids
from workload.app import App

MEMORY = "32MiB"
"""For block cache and write buffers: the state of 10,000,000 keys is more than ten times as much."""
PERIOD_S = 0.5
SLOWEST = 20_000
SHOWN = (0.1, 0.25, 0.5, 0.75, 1.0)


def measure(setting: Setting) -> Results:
    """Eager, with one worker."""
    kafka, screen, records = setting.kafka, setting.screen, setting.sizes.grown
    name = setting.name("growth")
    source, target = f"{name}.in", f"{name}.out"
    with screen.part(1):
        screen.doing(f"filling a topic with {records:,} bids of as many keys")
        kafka.make(source)
        kafka.make(target)
        bids.send(kafka.brokers, source, bids.fill(records))
        rest = setting.rest()
        screen.doing(f"{records:,} keys, {MEMORY} of block cache and write buffers")
        app = App(setting.processes, kafka.brokers, setting.folder, "eager", name, source, target, memory=MEMORY)
        samples = follow(setting, app, target, records)
        found = {"records": records, "memory_option": MEMORY, **of(samples), "samples": samples, **rest}
        screen.done(
            f"memory to [bold]{found['rss_max'] / 2**20:,.0f} MiB[/]; at the end: "
            f"state {found['state_end'] / 2**20:,.0f} MiB, topics {found['topics_end'] / 2**20:,.0f} MiB"
        )
        kafka.delete(name)
        shutil.rmtree(app.state, ignore_errors=True)
    return found


def follow(setting: Setting, app: App, target: str, records: int) -> list[Results]:
    """Look every half second, until all has gone through. Raises Failed."""
    began = time.monotonic()
    app.start("--until", "end")
    samples: list[Results] = []
    while app.run.alive:
        if time.monotonic() - began > 60 + records / SLOWEST:
            raise Failed(f"{app.name}: not done after {time.monotonic() - began:.0f} s")
        time.sleep(PERIOD_S)
        rss = memory_of(app.worker_pids())
        topics = setting.kafka.bytes_of(f"falkirk.{app.name}.")
        samples.append(
            {
                "seconds": round(time.monotonic() - began, 2),
                "records": min(records, setting.kafka.end(target)),
                "rss": rss or (samples[-1]["rss"] if samples else 0),
                "state": disk_bytes(app.state),
                "topics": {topic.removeprefix(f"falkirk.{app.name}."): size for topic, size in topics.items()},
            }
        )
    app.run.wait(1)
    return samples


def memory_of(pids: list[int]) -> int:
    """Resident bytes."""
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def of(samples: list[Results]) -> Results:
    """The highest and the last of each, and memory along the way."""
    end = samples[-1]
    along = {share: next(s["rss"] for s in samples if s["records"] >= share * end["records"]) for share in SHOWN}
    return {
        "rss_max": max(s["rss"] for s in samples),
        "rss_along": {str(share): rss for share, rss in along.items()},
        "state_end": end["state"],
        "state_max": max(s["state"] for s in samples),
        "topics_end": sum(end["topics"].values()),
        "topics_max": max(sum(s["topics"].values()) for s in samples),
        "topics": end["topics"],
    }
