"""Workers and gateways are killed while clients ask and ask again, with their keys, at any gateway. Whatever happens, each
request is computed once, and answered each time as the first time.

    clients      each sends its requests one after the other. It asks again until it is answered, and then for an older one,
                 too. One in ten of its requests is followed by another with the same key and another body
    harm         once enough has been answered since the last time, and all work: a worker and a gateway are killed -9, and
                 each fifth time the broker
    oracle       the flow numbers the requests of each item. A request that was computed twice, or not, leaves a gap in the
                 numbers that clients were told. Requests of many rows are reduced by the gateways: what a separate reader
                 finds committed is just the rows that are left, computed here in another way
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.cli.live import committed, kill_one, workers
from tests.serve.stand import Stand, Told

from falkirk.connectors.embedded import EmbeddedKafka

ITEMS = "abc"


class Trial:
    """One trial."""

    def __init__(
        self,
        stand: Stand,
        *,
        clients: int,
        each: int,
        between: int,
        broker: EmbeddedKafka | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`each`: requests of a client. `between`: requests that are answered between two kills, at least. `broker`: one that
        may be killed."""
        self.stand, self.clients, self.each, self.between = stand, clients, each, between
        self.broker, self.say = broker, say
        self.told: defaultdict[tuple[str, str], list[Told]] = defaultdict(list)
        """By source and key: every answer that somebody got."""
        self.sent: dict[str, list[dict[str, Any]]] = {}
        """By key: the rows of requests of many rows."""
        self.kills = 0
        self._done = threading.Event()

    def run(self) -> None:
        """All requests. Raises AssertionError for a request that is not answered, or not as it must be."""
        stand = self.stand
        run = stand.run()
        stand.serve(0)
        stand.serve(1)
        stand.until(lambda: stand.ready(0) and stand.ready(1))
        harming = threading.Thread(target=self._harm, args=(run,))
        harming.start()
        try:
            with ThreadPoolExecutor(self.clients) as pool:
                for future in [pool.submit(self._client, number) for number in range(self.clients)]:
                    future.result()
        finally:
            self._done.set()
            harming.join()

    def check(self) -> None:
        """Raises AssertionError unless each request was computed once, and answered each time as the first time."""
        assert len(self.told) == self.clients * self.each
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for (source, key), answers in self.told.items():
            assert {answer.status for answer in answers} == {200}
            assert len({json.dumps(answer.body) for answer in answers}) == 1, f"{source} {key} was answered in two ways"
            if source == "numbered":
                [row] = answers[0].body
                numbers[row["item"]].append(row["n"])
        assert set(numbers) == set(ITEMS)
        for item, found in numbers.items():
            assert sorted(found) == list(range(1, len(found) + 1)), f"requests of {item} were computed twice"
        taxed = {key.encode() for source, key in self.told if source == "taxed"}
        seen = Counter(key for key, _, _ in committed(self.stand.brokers, f"{self.stand.prefix}seen"))
        assert seen == dict.fromkeys(taxed, 1)
        self._check_reduced()

    def _check_reduced(self) -> None:
        prefix = self.stand.prefix
        left = {
            key: [row for row in self.sent[key] if row["usd"] > 50] for source, key in self.told if source == "dear"
        }
        assert len({bool(rows) for rows in left.values()}) == 2, "no request was left whole, or none went"
        logged, written = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
        for key, value, _ in committed(self.stand.brokers, f"{prefix}dear"):
            logged[key.decode()].append(json.loads(value)["rows"])
        for key, value, _ in committed(self.stand.brokers, f"{prefix}dear-rows"):
            row = json.loads(value)
            written[key.decode()].append({"item": row["item"], "usd": row["usd"]})
        for key, rows in left.items():
            rows = [{"item": row["item"], "usd": row["usd"]} for row in rows]
            assert self.told["dear", key][0].body == rows
            assert written.pop(key, []) == rows
            # A gateway that was killed may have logged a request that another one logs again: the flow drops it.
            records = logged.pop(key, [])
            assert bool(records) == bool(rows), f"{key}: something was logged of nothing, or nothing of something"
            assert all(record == rows for record in records), f"{key} is not in its topic as it was reduced"
        assert not written
        assert not logged

    def _client(self, number: int) -> None:
        choice = random.Random(number)
        sent: list[tuple[str, str, object]] = []

        def row() -> dict[str, Any]:
            return {"item": choice.choice(ITEMS), "usd": 1 + choice.randrange(99)}

        def ask(source: str, key: str, body: object) -> Told:
            return self.stand.answered(lambda: choice.randrange(2), source, body, key)

        for n in range(self.each):
            source, key = choice.choice(["taxed", "numbered", "numbered", "dear"]), f"{number}-{n}"
            if source == "dear":
                self.sent[key] = [{**row(), "note": "left out"} for _ in range(choice.randrange(4))]
            sent.append((source, key, self.sent[key] if source == "dear" else row()))
            self.told[source, key].append(told := ask(*sent[-1]))
            # What left no row has not used its key.
            if choice.random() < 0.1 and told.body:
                assert ask(source, key, {"item": "d", "usd": 1}).status == 422
            source, key, body = choice.choice(sent)
            self.told[source, key].append(ask(source, key, body))

    def _harm(self, run: Any) -> None:
        choice, before = random.Random(7), 0
        while not self._done.wait(0.1):
            if len(self.told) < before + self.between or not self._all_work(run):
                continue
            before, gateway = len(self.told), choice.randrange(2)
            harms: list[Callable[[], None]] = [lambda: kill_one(run), lambda at=gateway: self.stand.kill_gateway(at)]
            for harm in choice.sample(harms, 2):
                time.sleep(choice.random() / 4)
                with suppress(IndexError):  # no worker is alive just now
                    harm()
            self.stand.serve(gateway)
            self.kills += 1
            if self.broker is not None and self.kills % 5 == 0:
                self.broker.kill()
                time.sleep(1)
                self.broker.start()
            self.say(f"{before} requests answered, {self.kills} times a worker and a gateway killed")

    def _all_work(self, run: Any) -> bool:
        return bool(workers(run)) and self.stand.ready(0) and self.stand.ready(1)
