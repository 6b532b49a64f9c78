"""Requests over HTTP at a fixed rate: how long an answer takes, beside a bare ASGI app that answers at once.

    python bench/gateway.py --rate 2000 --seconds 20

A broker, a run with one worker, a gateway and the load are processes of their own. The load keeps its rate whatever comes
back, so that a request that waits to be sent counts as waiting. Every request has an Idempotency-Key. At the end the topics
tell whether each was computed and answered once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil

from falkirk.connectors.embedded import EmbeddedKafka
from harness.command import command
from workload.outputs import committed

FLOW = """
import falkirk as fk

flow = fk.Flow("bench", regime=fk.EagerCheckpoint(step="{step}"))
orders = flow.http("orders", value=fk.Json({{"item": str, "usd": int}}), partitions={partitions}, keep="1h")
orders.sink("seen", key="request", value=fk.Json())
orders.with_columns(tax=fk.col("usd") * 2).select("request", "item", "tax").answer("orders")
"""

BARE = """
import uvicorn

async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"27")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'[{"item":"lamp","tax":80}]\\n'})

uvicorn.run(app, port=PORT, log_level="warning", access_log=False, lifespan="off")
"""

BODY = b'{"item":"lamp","usd":40}'
GATEWAY, BARE_APP = 18_181, 18_182


@command(__doc__)
@click.option("--rate", default=2000, show_default=True, help="Requests a second.")
@click.option("--seconds", default=20, show_default=True, help="For how long.")
@click.option("--connections", default=500, show_default=True, help="Kept open by the load.")
@click.option("--step", default="20ms", show_default=True, help="Of the flow's regime.")
@click.option("--partitions", default=2, show_default=True, help="Of the topic of requests.")
def main(rate: int, seconds: int, connections: int, step: str, partitions: int) -> None:
    """Measure both, and print a line for each."""
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-", ignore_cleanup_errors=True) as folder:
        measure(Path(folder), rate, seconds, connections, step, partitions)


def measure(folder: Path, rate: int, seconds: int, connections: int, step: str, partitions: int) -> None:
    """Both, one after the other."""
    (folder / "bare.py").write_text(BARE.replace("PORT", str(BARE_APP)))
    with process("bare.py", cwd=folder) as bare:
        print(f"bare ASGI app     {measured(BARE_APP, [bare], rate, seconds, connections)}")
    (folder / "app.py").write_text(FLOW.format(step=step, partitions=partitions))
    with EmbeddedKafka(folder / "kafka") as kafka:
        falkirk = ("-m", "falkirk")
        reach = ("app.py:flow", "--brokers", kafka.bootstrap)
        with process(*falkirk, "run", *reach, cwd=folder) as run:
            listen = ("--listen", str(GATEWAY), "--in-flight", "5000")
            with process(*falkirk, "serve", *reach, *listen, cwd=folder) as gateway:
                print(f"Falkirk           {measured(GATEWAY, [gateway, run], rate, seconds, connections)}")
        seen, answered = keys(kafka.bootstrap, "seen"), keys(kafka.bootstrap, "orders-answers")
        doubled = sum(count > 1 for count in seen.values())
        print(f"                  {len(seen):,} requests computed, {doubled} of them twice; {len(answered):,} answers")


@contextmanager
def process(*arguments: str, cwd: Path) -> Iterator[psutil.Process]:
    """A Python process, which ends with the block."""
    made = subprocess.Popen([sys.executable, *arguments], cwd=cwd, stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        yield psutil.Process(made.pid)
    finally:
        made.terminate()
        made.wait()


def measured(port: int, of: list[psutil.Process], rate: int, seconds: int, connections: int) -> str:
    """One load, in words."""
    asyncio.run(until_answered(port))
    before = cpu(of)
    found = asyncio.run(load(port, rate, seconds, connections))
    took = (cpu(of) - before) / max(1, len(found.ages)) * 1e6
    ages = sorted(found.ages)
    p50, p99 = (ages[int(len(ages) * share)] * 1000 for share in (0.5, 0.99))
    refused = f", refused {json.dumps(found.refused)}" if found.refused else ""
    speed = f"{len(ages) / found.seconds:7,.0f} requests/s   median {p50:6.1f} ms   p99 {p99:6.1f} ms"
    return f"{speed}   {took:4.0f} µs CPU a request{refused}"


def cpu(of: list[psutil.Process]) -> float:
    """Seconds of these processes and of those that they have started."""
    every = [each for one in of for each in (one, *one.children(recursive=True))]
    return sum(sum(each.cpu_times()[:2]) for each in every)


class Found:
    """What a load has seen."""

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.refused: Counter[int] = Counter()
        self.seconds = 0.0


async def load(port: int, rate: int, seconds: int, connections: int) -> Found:
    """Requests at this rate: each is due at a time of its own, and its age counts from then."""
    found, began = Found(), time.perf_counter()
    due = iter([began + n / rate for n in range(rate * seconds)])

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in due:
            if (early := at - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            status = await ask(reader, writer)
            found.ages.append(time.perf_counter() - at)
            if status != 200:
                found.refused[status] += 1
        writer.close()

    await asyncio.gather(*[client() for _ in range(connections)])
    found.seconds = time.perf_counter() - began
    return found


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """One request: its status."""
    head = (
        "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {uuid.uuid4().hex}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    writer.write(head.encode() + BODY)
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
    await reader.readexactly(length)
    return int(lines[0].split()[1])


async def until_answered(port: int) -> None:
    """Wait until requests are answered."""
    for _ in range(1200):
        await asyncio.sleep(0.1)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status = await ask(reader, writer)
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            continue
        if status == 200:
            return
    raise click.ClickException(f"nothing answers at port {port}")


def keys(brokers: str, topic: str) -> Counter[bytes]:
    """How many committed records each key has."""
    return Counter(bytes(m.key() or b"") for messages in committed(brokers, topic) for m in messages)


if __name__ == "__main__":
    main()
