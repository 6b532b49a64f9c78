"""python -m tests.serve: many requests, each sent at least twice, while workers, gateways and the broker are killed.

.venv/bin/python -m tests.serve --requests 10000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.serve.stand import Stand
from tests.serve.trial import Trial

from falkirk.connectors.embedded import EmbeddedKafka


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--between", type=int, default=200, help="requests between two kills, at least")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="falkirk-serve-") as folder, ExitStack() as stack:
        kafka = stack.enter_context(
            EmbeddedKafka(Path(folder) / "kafka", settings={"group.min.session.timeout.ms": "500"})
        )
        stand = Stand(kafka.bootstrap, "", Path(folder), stack.callback)
        began = time.monotonic()
        trial = Trial(
            stand, clients=given.clients, each=given.requests // given.clients, between=given.between, broker=kafka,
            say=lambda words: print(f"{time.monotonic() - began:6.0f} s  {words}", flush=True),
        )  # fmt: skip
        trial.run()
        trial.check()
        answers = sum(map(len, trial.told.values()))
        print(f"{len(trial.told):,} requests computed once, {answers:,} answers as the first time, {trial.kills} kills")


if __name__ == "__main__":
    main()
