"""A small TPC-H: its eight tables with their keys and value ranges, made so that each query has rows, and changes of them.

The standard's lists of values are cut to those that the queries ask for, and a few others. Money is a double.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from random import Random
from typing import Any

import falkirk as fk

Row = dict[str, Any]
Change = tuple[str, Row, int]
"""A row of a table that comes (1) or is taken back (−1)."""

SCHEMAS: dict[str, dict[str, Any]] = {
    "region": {"r_regionkey": int, "r_name": str},
    "nation": {"n_nationkey": int, "n_name": str, "n_regionkey": int},
    "supplier": {"s_suppkey": int, "s_name": str, "s_address": str, "s_nationkey": int, "s_phone": str,
                 "s_acctbal": float, "s_comment": str},
    "customer": {"c_custkey": int, "c_name": str, "c_address": str, "c_nationkey": int, "c_phone": str,
                 "c_acctbal": float, "c_mktsegment": str, "c_comment": str},
    "part": {"p_partkey": int, "p_name": str, "p_mfgr": str, "p_brand": str, "p_type": str, "p_size": int,
             "p_container": str},
    "partsupp": {"ps_partkey": int, "ps_suppkey": int, "ps_availqty": int, "ps_supplycost": float},
    "orders": {"o_orderkey": int, "o_custkey": int, "o_orderstatus": str, "o_totalprice": float, "o_orderdate": fk.Date,
               "o_orderpriority": str, "o_shippriority": int, "o_comment": str},
    "lineitem": {"l_orderkey": int, "l_linenumber": int, "l_partkey": int, "l_suppkey": int, "l_quantity": float,
                 "l_extendedprice": float, "l_discount": float, "l_tax": float, "l_returnflag": str, "l_linestatus": str,
                 "l_shipdate": fk.Date, "l_commitdate": fk.Date, "l_receiptdate": fk.Date, "l_shipinstruct": str,
                 "l_shipmode": str},
}  # fmt: skip

_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (("ALGERIA", 0), ("BRAZIL", 1), ("CANADA", 1), ("CHINA", 2), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2),
            ("SAUDI ARABIA", 4))  # fmt: skip
_CODES = ("13", "31", "23", "29", "30", "18", "17", "11")
"""The country code of each nation's telephones."""
_NAMES = ("forest green", "green lace", "forest almond", "navy blush")
_TYPES = ("ECONOMY ANODIZED STEEL", "PROMO PLATED BRASS", "STANDARD BURNISHED BRASS", "MEDIUM POLISHED TIN")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW")
_DAYS = (date(1993, 7, 1), date(1993, 10, 1), date(1994, 1, 1), date(1994, 7, 1), date(1995, 2, 1), date(1995, 8, 1),
         date(1996, 1, 1))  # fmt: skip
"""Orders are placed within 70 days of these, which is where the queries look."""
_CUT = date(1995, 6, 17)
"""The standard's current date: lines that were shipped before it are F."""

CUSTOMERS, SUPPLIERS, PARTS, ORDERS = 60, 16, 16, 110


class Tpch:
    """The rows that are there, and what makes more of them."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.tables: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in SCHEMAS}

    def steps(self) -> Iterator[list[Change]]:
        """All rows, and then changes: orders that come and go, and suppliers, customers, parts and prices that change."""
        first = [*self._fixed(), *self._parties(), *self._parts()]
        for number in range(1, ORDERS + 1):
            first += self._order(number)
        yield self._applied(first)
        for number in range(2):
            yield self._applied(self._changes(number))
        yield self._applied([change for key in range(1, ORDERS, 7) for change in self._without(key)])

    def rows(self, name: str) -> list[Row]:
        """The integral of a table's changes."""
        return [dict(zip(SCHEMAS[name], row, strict=True)) for row in self.tables[name].elements()]

    def _applied(self, changes: list[Change]) -> list[Change]:
        for name, row, weight in changes:
            self.tables[name][tuple(row.values())] += weight
        assert all(count >= 0 for table in self.tables.values() for count in table.values())
        return changes

    def _fixed(self) -> Iterator[Change]:
        for key, name in enumerate(_REGIONS):
            yield "region", {"r_regionkey": key, "r_name": name}, 1
        for key, (name, region) in enumerate(_NATIONS):
            yield "nation", {"n_nationkey": key, "n_name": name, "n_regionkey": region}, 1

    def _parties(self) -> Iterator[Change]:
        for key in range(1, SUPPLIERS + 1):
            yield "supplier", self._supplier(key, key % len(_NATIONS)), 1
        for key in range(1, CUSTOMERS + 1):
            yield "customer", self._customer(key), 1

    def _supplier(self, key: int, nation: int) -> Row:
        comment = "sly Customer of Complaints" if key % 5 == 0 else "quiet deposits"
        return {
            "s_suppkey": key, "s_name": f"Supplier#{key:09}", "s_address": f"street {key}", "s_nationkey": nation,
            "s_phone": f"{_CODES[nation]}-555-{key:04}", "s_acctbal": self._money(-999, 9999), "s_comment": comment,
        }  # fmt: skip

    def _customer(self, key: int) -> Row:
        nation = self.random.randrange(len(_NATIONS))
        return {
            "c_custkey": key, "c_name": f"Customer#{key:09}", "c_address": f"road {key}", "c_nationkey": nation,
            "c_phone": f"{_CODES[nation]}-777-{key:04}", "c_acctbal": self._money(-999, 9999),
            "c_mktsegment": self.random.choice(("BUILDING", "MACHINERY")), "c_comment": f"comment {key}",
        }  # fmt: skip

    def _parts(self) -> Iterator[Change]:
        for key in range(1, PARTS + 1):
            brand, container = (("12", "SM CASE"), ("23", "MED BOX"), ("34", "LG PACK"), ("45", "JUMBO JAR"))[key % 4]
            yield "part", {
                "p_partkey": key, "p_name": _NAMES[key // 4 % 4], "p_mfgr": f"Manufacturer#{key % 5}",
                "p_brand": f"Brand#{brand}", "p_type": _TYPES[self.random.randrange(4)],
                "p_size": (3, 15, 3, 9)[key // 4 % 4], "p_container": container,
            }, 1  # fmt: skip
            for supplier in self._suppliers(key):
                yield "partsupp", {
                    "ps_partkey": key, "ps_suppkey": supplier, "ps_availqty": self.random.randint(1, 999),
                    "ps_supplycost": self._money(1, 1000),
                }, 1  # fmt: skip

    def _suppliers(self, part: int) -> list[int]:
        """The four suppliers of a part."""
        return [(part + i * 5) % SUPPLIERS + 1 for i in range(4)]

    def _order(self, key: int) -> list[Change]:
        """An order and its lines. A third of the customers never orders."""
        customer = self.random.choice([c for c in range(1, CUSTOMERS + 1) if c % 3])
        day = self.random.choice(_DAYS) + timedelta(days=self.random.randrange(70))
        large = key % 11 == 0
        lines = [
            self._line(key, number + 1, day, large=large) for number in range(7 if large else self.random.randint(1, 5))
        ]
        status = {line["l_linestatus"] for line in lines}
        order = {
            "o_orderkey": key, "o_custkey": customer, "o_orderstatus": status.pop() if len(status) == 1 else "P",
            "o_totalprice": round(sum(line["l_extendedprice"] for line in lines), 2), "o_orderdate": day,
            "o_orderpriority": self.random.choice(_PRIORITIES), "o_shippriority": 0,
            "o_comment": self.random.choice(("special packages and requests", "even accounts", "final ideas")),
        }  # fmt: skip
        return [("orders", order, 1), *[("lineitem", line, 1) for line in lines]]

    def _line(self, order: int, number: int, day: date, *, large: bool) -> Row:
        random = self.random
        part = random.randint(1, PARTS)
        quantity = random.randint(45, 50) if large else random.choice((1, 2, random.randint(1, 50)))
        shipped, due = (day + timedelta(days=random.randint(1, n)) for n in (60, 80))
        received = shipped + timedelta(days=random.randint(1, 30))
        return {
            "l_orderkey": order, "l_linenumber": number, "l_partkey": part,
            "l_suppkey": random.choice(self._suppliers(part)), "l_quantity": float(quantity),
            "l_extendedprice": round(quantity * (900 + part) / 10, 2), "l_discount": random.randint(0, 10) / 100,
            "l_tax": random.randint(0, 8) / 100, "l_returnflag": random.choice("RA") if received <= _CUT else "N",
            "l_linestatus": "F" if shipped <= _CUT else "O", "l_shipdate": shipped, "l_commitdate": due,
            "l_receiptdate": received, "l_shipinstruct": random.choice(("DELIVER IN PERSON", "NONE")),
            "l_shipmode": random.choice(("AIR", "AIR REG", "MAIL", "SHIP")),
        }  # fmt: skip

    def _changes(self, number: int) -> list[Change]:
        """Orders that go, orders that come, and rows of the other tables that change."""
        changes = [change for key in range(2 + number, ORDERS, 10) for change in self._without(key)]
        for key in range(ORDERS + 1 + number * 20, ORDERS + 21 + number * 20):
            changes += self._order(key)
        for name, column, values in (
            ("supplier", "s_nationkey", (2, 5, 7)), ("customer", "c_acctbal", (-5.5, 9000.25, 12.0)),
            ("partsupp", "ps_supplycost", (0.5, 700.0, 33.3)), ("part", "p_size", (3, 15, 49)),
            ("supplier", "s_comment", ("Customer Complaints", "quiet deposits")),
        ):  # fmt: skip
            for row in self.random.sample(sorted(self.rows(name), key=repr), 6):
                if not any(n == name and r[next(iter(r))] == row[next(iter(row))] for n, r, _ in changes):
                    changes += [(name, row, -1), (name, {**row, column: self.random.choice(values)}, 1)]
        return changes

    def _without(self, key: int) -> list[Change]:
        orders = [("orders", row, -1) for row in self.rows("orders") if row["o_orderkey"] == key]
        return orders + [("lineitem", row, -1) for row in self.rows("lineitem") if row["l_orderkey"] == key]

    def _money(self, low: int, high: int) -> float:
        return self.random.randint(low * 100, high * 100) / 100
