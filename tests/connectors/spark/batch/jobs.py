"""Jobs that are small enough to be seen through. Records are `key=number`."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.shards import murmur2_of
from falkirk.stream.batch import PARCELS, Piece
from falkirk.stream.dataflow.records import Records

Frames = Iterator[pl.DataFrame]
SUMS, LENGTHS = 0, 1


def rows(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({**dict.fromkeys(PARCELS), **columns}, schema=PARCELS)


@dataclass(frozen=True)
class Totals:
    """Sink 0: each key and its sum. Sink 1: how many keys there are of each length, with no key. Two levels."""

    levels: int = 2
    clock: int = 1_000
    buckets: int = 4
    result_partitions: int = 4
    mark: Callable[[bytes], bytes] = bytes
    """What becomes of a key on the way: a function of a user's."""

    def head(self, piece: Piece, chunks: Iterator[Records]) -> Frames:
        for number, records in enumerate(chunks):
            sums = Counter[bytes]()
            for value in filter(None, records.values):
                key, _, amount = value.partition(b"=")
                sums[self.mark(key)] += int(amount)
            order = struct.pack(">hiqi", piece.source, piece.partition, piece.start, number)
            yield self.parcels(1, 0, order, sums)

    def level(self, n: int, parcels: Frames) -> Frames:
        single = chain.from_iterable(frame.iter_slices(1) for frame in parcels)
        place = pl.col("level", "exchange", "bucket")
        for (level, _, bucket), own in groupby(single, key=lambda row: row.select(place).row(0)):
            if level != n:
                yield pl.concat(own)
                continue
            sums, last = Counter[bytes](), b""
            for parcel in own:
                assert last < parcel.item(0, "order"), "parcels are not in the order of their bytes"
                last = parcel.item(0, "order")
                sums.update({key.encode("latin-1"): n for key, n in json.loads(parcel.item(0, "payload")).items()})
            if n == 1:
                yield self.results(SUMS, bucket, [(key, b"%d" % total) for key, total in sorted(sums.items())])
                yield self.parcels(2, 1, struct.pack(">i", bucket), Counter(b"%d" % len(key) for key in sums))
            else:
                yield self.results(LENGTHS, bucket, [(None, b"%s:%d" % found) for found in sorted(sums.items())])

    def parcels(self, level: int, exchange: int, order: bytes, sums: Counter[bytes]) -> pl.DataFrame:
        buckets: dict[int, dict[str, int]] = {}
        for key, total in sums.items():
            buckets.setdefault(murmur2_of(key) % self.buckets, {})[key.decode("latin-1")] = total
        payloads = [json.dumps(own).encode() for own in buckets.values()]
        return rows(level=level, exchange=exchange, bucket=list(buckets), order=order, payload=payloads)

    def results(self, sink: int, source: int, found: list[tuple[bytes | None, bytes]]) -> pl.DataFrame:
        buckets = [(murmur2_of(key or value) & 0x7FFFFFFF) % self.result_partitions for key, value in found]
        return rows(
            level=self.levels + 1,
            exchange=sink,
            bucket=buckets,
            order=[struct.pack(">ii", source, n) for n in range(len(found))],
            key=[key for key, _ in found],
            value=[value for _, value in found],
            timestamp=[5] * len(found),
        )


@dataclass(frozen=True)
class Heavy(Totals):
    """Parcels of half a megabyte: a level says how much of them it was handed at once. Sink 1: the most, in bytes."""

    levels: int = 1

    def head(self, piece: Piece, chunks: Iterator[Records]) -> Frames:
        for number, _ in enumerate(chain.from_iterable(records.values for records in chunks)):
            order = struct.pack(">qi", piece.start, number)
            yield rows(level=1, exchange=0, bucket=0, order=order, payload=[bytes(512 << 10)])

    def level(self, n: int, parcels: Frames) -> Frames:
        sizes = []
        for frame in parcels:
            if frame.item(0, "level") == n:
                sizes.append(sum(map(len, frame["payload"].drop_nulls())))
            yield frame.filter(pl.col("level") != n)
        if sum(sizes):
            yield self.results(LENGTHS, 0, [(None, b"%d" % max(sizes))])


def totals(values: list[bytes]) -> tuple[dict[bytes, bytes], Counter[bytes]]:
    """What an epoch of Totals over these records is to give: the sums, and the lengths."""
    sums = Counter[bytes]()
    for value in values:
        key, _, amount = value.partition(b"=")
        sums[key] += int(amount)
    lengths = Counter(len(key) for key in sums)
    return {key: b"%d" % n for key, n in sums.items()}, Counter(b"%d:%d" % found for found in lengths.items())


def refusing(key: bytes) -> bytes:
    """Fails as a user's function does, in Falkirk's words."""
    raise UserCodeError("map() raised ZeroDivisionError", where="app.py:7", hint="fix it")


def failing(key: bytes) -> bytes:
    raise ZeroDivisionError("nobody foresaw this")


def killing_once(folder: Path) -> Callable[[bytes], bytes]:
    """Ends the process in which it is called for the first time, at once."""

    def mark(key: bytes) -> bytes:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return key
        os.kill(os.getpid(), signal.SIGKILL)
        return key

    return mark
