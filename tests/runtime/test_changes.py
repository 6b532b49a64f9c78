"""A Postgres table by Debezium joined with a stream, on a real broker, with the app killed while it runs."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from tests.bad_input.stand import Stand
from tests.duck import database
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

FLOW = """
flow = fk.Flow(NAME, regime=fk.LazyCheckpoint(step="20ms"))
customer = fk.Json({"id": fk.Int64, "name": fk.String})
customers = flow.source(PREFIX + "customers", key="id", value=customer, changes="debezium")
orders = flow.source(PREFIX + "orders", value=fk.Json({"order": fk.Int64, "id": fk.Int64}))
named = orders.join(customers, on="id", id="named")
named.sink(PREFIX + "named", key=["order", "id", "name"], value=fk.Json(), changes="weights")
totals = named.group_by("name", id="totals").agg(n=fk.len())
totals.sink(PREFIX + "totals", key="name", value=fk.Json(), changes="debezium")
"""


class Shop:
    """What a shop's database and its orders write."""

    def __init__(self, stand: Stand) -> None:
        self.stand, self.random = stand, random.Random(7)
        self.names: dict[int, str] = {}
        self.orders: list[tuple[int, int]] = []
        for name in ("customers", "orders"):
            stand.topic(name, 2)

    def work(self, count: int) -> None:
        """Some orders, and customers who come, change and go, as the default replica identity writes it."""
        for _ in range(count):
            self.orders.append((len(self.orders), self.random.randrange(8)))
            order, id_ = self.orders[-1]
            self._send("orders", str(order), {"order": order, "id": id_})
            customer, name = self.random.randrange(8), self.random.choice(["Ann", "Bo", "Cy", None])
            was = self.names.pop(customer, None)
            if name is not None:
                self.names[customer] = name
                self._change(customer, None, {"id": customer, "name": name}, "c" if was is None else "u")
            elif was is not None:
                self._change(customer, {"id": customer, "name": None}, None, "d")
                self.stand.producer.produce(f"{self.stand.prefix}customers", None, _key(customer))
        assert self.stand.producer.flush(PATIENCE_S) == 0

    def _change(self, id_: int, before: Any, after: Any, op: str) -> None:
        event = {"before": before, "after": after, "op": op, "source": {"lsn": 1}, "ts_ms": 1}
        self._send("customers", _key(id_), {"schema": {"type": "struct"}, "payload": event})

    def _send(self, topic: str, key: bytes | str, value: Any) -> None:
        self.stand.producer.produce(self.stand.prefix + topic, orjson.dumps(value), key)

    def wanted(self) -> tuple[Counter[Any], Counter[Any]]:
        """What DuckDB says of the tables as they are now."""
        orders = pl.DataFrame(self.orders, ["order", "id"], orient="row")
        customers = pl.DataFrame([*self.names.items()], {"id": pl.Int64, "name": pl.String}, orient="row")
        with database(orders=orders, customers=customers) as db:
            named = 'select "order", id, name from orders join customers using (id)'
            totals = db.execute(f"select name, count(*) from ({named}) group by name").fetchall()
            return Counter(db.execute(named).fetchall()), Counter(totals)


def _key(id_: int) -> bytes:
    return orjson.dumps({"id": id_})


def read(stand: Stand) -> tuple[Counter[Any], Counter[Any]]:
    """What is left of all that a read_committed reader sees; nothing is ever taken back that is not there."""
    named: Counter[Any] = Counter()
    totals: Counter[Any] = Counter()
    for row in stand.values("named"):
        *cells, weight = row.values()
        named[tuple(cells)] += weight
        assert named[tuple(cells)] >= 0, f"lost or doubled before {row}"
    for event in stand.values("totals"):
        for side, sign in (("before", -1), ("after", 1)):
            if event[side] is not None:
                totals[tuple(event[side].values())] += sign
                assert totals[tuple(event[side].values())] in (0, 1), f"lost or doubled before {event}"
    return +named, +totals


def seen(stand: Stand) -> int:
    name = f"{stand.prefix}totals"
    return len(stand.values("totals")) if name in stand.admin.list_topics(timeout=PATIENCE_S).topics else 0


@pytest.mark.slow
def test_a_table_by_debezium_joined_with_a_stream_is_exact_through_kills(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path)
    try:
        shop = Shop(stand)
        for _ in range(3):
            before = seen(stand)
            shop.work(60)
            going = stand.start(FLOW)
            deadline = time.monotonic() + PATIENCE_S
            while seen(stand) == before:
                assert time.monotonic() < deadline, going.said.read_text()
                shop.work(5)
                time.sleep(0.05)
            shop.work(60)
            going.kill()
        ended = stand.cli(FLOW)
        assert ended.code == 0, ended.text
        assert read(stand) == shop.wanted()
    finally:
        stand.close()
