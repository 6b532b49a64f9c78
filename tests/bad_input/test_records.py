"""Records and functions that go wrong together: the run ends with the record's address, and goes on from that record."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.bad_input.stand import KEYS, Stand, flow_file
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import SourceError, UserCodeError
from falkirk.runtime.inspect.status import read_status

pytestmark = pytest.mark.kafka

FLOW = """
def checked(row):
    {body}
    return row

bids = bids.map(checked)
bids.filter(~fk.col("note").is_null()).select("id", "note").sink(PREFIX + "notes", value=fk.Json())
"""

RAISES = 'if row["id"] == 40: raise ValueError("no forty")'
MISSHAPEN = 'if row["id"] == 60: return [row]'


def flow(body: str = "") -> str:
    return flow_file(FLOW.format(body=body or "pass"))


@pytest.mark.slow
def test_every_error_names_the_record_and_the_mended_run_goes_on_from_it(stand: Stand) -> None:
    stand.topic()
    stand.topic("notes", max_message_bytes="2000")
    stand.bids(50)

    shown = stand.cli(flow(RAISES))
    shown.assert_says(5, "map 'checked'", "raised ValueError: no forty", "app.py:", stand.place(40), "fix it")
    stand.bids(50)
    shown = stand.cli(flow(MISSHAPEN))
    shown.assert_says(
        5, "which is not a valid row of id Int64, auction Int64", stand.place(60), "return dicts with these columns"
    )

    big = {"id": 100, "auction": 3, "bidder": 1, "price": 7, "note": "x" * 5000}
    stand.put(b"3", orjson.dumps(big))
    stand.sent += 1
    stand.bids(50)
    shown = stand.cli(flow())
    notes = f"{stand.prefix}notes"
    shown.assert_says(5, f"does not fit into topic '{notes}'", "max.message.bytes, 2,000", stand.place(100))
    stand.configure(notes, max_message_bytes="20000")

    stand.go_on(flow())
    stand.assert_exact()
    assert stand.values("notes") == [{"id": 100, "note": big["note"]}]


@pytest.mark.slow
def test_why_an_app_has_stopped_is_known_at_once_until_it_runs_again(stand: Stand) -> None:
    topics = Topics(stand.settings.cluster())
    stand.topic()
    stand.bids(50)
    stand.cli(flow(RAISES)).assert_says(5, "no forty")
    found = read_status(stand.name, stand.settings, topics)
    [problem] = found.problems
    assert (found.state, problem.exit_code, bool(problem.by and problem.at)) == ("stopped", 5, True)
    assert "raised ValueError: no forty" in problem.what
    assert stand.place(40) in problem.where
    stand.start(flow())
    stand.settle()
    deadline = time.monotonic() + PATIENCE_S
    while (found := read_status(stand.name, stand.settings, topics)).problems or found.state != "running":
        assert time.monotonic() < deadline, found


@pytest.mark.slow
def test_state_that_is_too_large_for_its_changelog(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(stand.flow())
    changelog = f"falkirk.{stand.name}.changelog.stats"
    stand.configure(changelog, max_message_bytes="520")
    stand.bids(50)
    with pytest.raises(UserCodeError, match=r"a key's state of \d+ bytes does not fit into topic") as caught:
        stand.run(stand.flow())
    assert changelog in caught.value.what
    assert "which reads " in caught.value.where
    assert ", key " in caught.value.where
    stand.configure(changelog, max_message_bytes="1000000")
    stand.run(stand.flow())
    stand.assert_exact()


@pytest.mark.slow
def test_a_sum_that_overflows_names_its_group_and_goes_on_without_what_made_it_so_large(stand: Stand) -> None:
    stand.topic()
    stand.bids(100)
    large = (
        'bids = bids.with_columns(price=fk.when(fk.col("id") == 70).then(fk.lit(2**63 - 1)).otherwise(fk.col("price")))'
    )
    shown = stand.cli(flow_file(large))
    shown.assert_says(
        5, "beyond Int64", "group {'auction': ", "group_by 'stats'", f"topic {stand.prefix}bids, partition "
    )
    stand.go_on(flow_file())
    stand.assert_exact()


def readable(value: bytes) -> Any:
    """A bid, or None for what the flow cannot decode."""
    try:
        bid = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return bid if isinstance(bid.get("price"), int) else None


def test_what_does_not_decode_is_buried_once_with_its_address_and_holds_nothing_up(stand: Stand) -> None:
    stand.settings = replace(stand.settings, prefix="mine")
    stand.topic()
    letters = {}
    for key, value, reason in (
        (b"1", b"{broken", "JSON"),
        (b"2", b'{"id":0,"auction":2,"price":"dear"}', "field 'price': cannot read 'dear' as Int64"),
        (b"3", b"\xff\xfe", ""),
        (b"4", None, ""),
    ):
        stand.bids(20)
        letters[stand.put(key, value)] = (key, value, reason)
    for _ in range(2):
        stand.bids(20)
        stand.crash(stand.flow())
    stand.assert_exact(parse=readable)
    assert f"falkirk.{stand.name}" not in " ".join(stand.admin.list_topics(timeout=PATIENCE_S).topics)
    found = list(stand.read(f"mine.{stand.name}.dead-letters"))
    assert len(found) == len(letters)
    for one in found:
        letter = orjson.loads(one.value or b"")
        key, value, reason = letters.pop((letter["partition"], letter["offset"]))
        assert one.key == key
        assert letter["payload"] == (None if value is None else base64.b64encode(value).decode())
        assert letter["topic"] == f"{stand.prefix}bids"
        assert reason in letter["reason"]
        assert letter["reason"]


@pytest.mark.slow
def test_too_much_that_does_not_decode_stops_the_run_and_nothing_is_lost(stand: Stand) -> None:
    stand.topic()
    stand.bids(20)
    stand.put(b"1", b"{broken")
    with pytest.raises(SourceError, match=r"1 of the last \d+ failed, and stop_above= allows 0 of 10,000.*not JSON"):
        stand.run(stand.flow(on_error=fk.DeadLetter(stop_above="0%")))
    letters = f"falkirk.{stand.name}.dead-letters"
    assert list(stand.read(letters)) == []
    stand.bids(20)
    stand.run(stand.flow())
    stand.assert_exact(parse=readable)
    assert len(list(stand.read(letters))) == 1


@pytest.mark.slow
def test_a_null_key_a_key_of_another_spelling_and_one_in_anothers_place(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    with pytest.raises(SourceError, match=r"column auction encodes to b'.x00") as caught:
        stand.go_on(flow_file(source='key=fk.Key("auction", fk.Int64BE)', name="-spelt"))
    assert f"source '{stand.prefix}bids'" in caught.value.where
    assert caught.value.hint.startswith("name the key's format")

    stand.put(None, orjson.dumps({"id": 50, "auction": None, "price": 1}), partition=1)
    shown = stand.cli(flow_file())
    where = f"topic {stand.prefix}bids, partition 1, offset "
    shown.assert_says(4, "a row has no key: its key column is null", where, "leave such rows out with a filter")
    keyed = 'bids = bids.filter(~fk.col("auction").is_null())'
    stand.go_on(flow_file(keyed))

    new = str(KEYS).encode()
    home, _ = stand.put(new, orjson.dumps({"id": 51, "auction": KEYS, "price": 2}))
    away, _ = stand.put(new, orjson.dumps({"id": 52, "auction": KEYS, "price": 3}), partition=1 - home)
    stand.sent += 2
    shown = stand.cli(flow_file(keyed))
    where = f"topic {stand.prefix}bids, partition {away}, offset "
    shown.assert_says(4, f"key {new!r} is in partition {away} of 2", where, "repartition=True", "another name")
    together = flow_file(keyed, source='key="auction", repartition=True', name="-2", sink="stats-2")
    stand.go_on(together)
    stand.assert_exact("stats-2", parse=lambda v: bid if (bid := orjson.loads(v))["auction"] is not None else None)
