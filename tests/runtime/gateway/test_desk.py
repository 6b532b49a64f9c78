"""What becomes of requests: the decisions of a desk, with a table, an app and clients that are lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from falkirk.connectors.http.messages import Asked, Reply, refused
from falkirk.runtime.gateway.answers import Answer, digest_of
from falkirk.runtime.gateway.desk import MOST_BYTES, STUCK, Desk, ToAppend
from falkirk.runtime.gateway.table import Heard
from falkirk.stream.definition.requests import MARGIN

KEEP = 60_000
BODY, OTHER = b'{"usd":1}', b'{"usd":2}'
DIGEST = digest_of(BODY)


@dataclass
class World:
    """A desk, and what is around it."""

    with_rows: bool = True
    most: int = 10
    known: dict[str, Answer] = field(default_factory=dict)
    appended: list[ToAppend] = field(default_factory=list)
    why: Reply | None = None
    reduces: bool = False
    now: float = 100.0
    date: int = 1_000_000

    def __post_init__(self) -> None:
        self.desk = Desk(KEEP, self.with_rows, self.most, self, self.appended.append, lambda: self.why, self.reduces)

    def get(self, key: str) -> Answer | None:
        return self.known.get(key)

    def ask(self, key: str | None, body: bytes = BODY) -> Client:
        client = Client()
        client.leave = self.desk.arrives(Asked("orders", key, body), client.told.append, self.now, self.date)
        return client

    def answers(self, key: str, digest: str | None = DIGEST, rows: bytes | None = b"[1]") -> None:
        """A record comes: into the table first, as from a tail."""
        heard = Heard(key, digest, rows, self.date)
        self.known[key] = self.known.get(key, Answer(self.date)).with_record(digest, rows, self.date, KEEP)
        self.desk.heard([heard])


@dataclass
class Client:
    """A request, as its client sees it."""

    told: list[Reply] = field(default_factory=list)
    leave: Callable[[], None] | None = None

    @property
    def status(self) -> int | None:
        assert len(self.told) <= 1, "a request is answered once"
        return self.told[0].status if self.told else None


def test_a_request_is_appended_once_and_answered_when_its_record_comes() -> None:
    world = World()
    client = world.ask("k")
    assert client.status is None
    [record] = world.appended
    assert record.key == "k"
    assert json.loads(record.value) == {"usd": 1, "request": "k", "request_digest": DIGEST}
    world.answers("k")
    assert client.told == [Reply(200, b"[1]")]
    assert not world.desk.flying


def test_a_repeated_request_gets_the_same_answer_and_is_not_appended() -> None:
    world = World()
    world.ask("k")
    world.answers("k")
    again = world.ask("k")
    assert (again.told, again.leave) == ([Reply(200, b"[1]")], None)
    assert len(world.appended) == 1


def test_a_request_with_another_body_is_refused_before_and_after_the_answer() -> None:
    world = World()
    first, second = world.ask("k"), world.ask("k", OTHER)
    assert (first.status, second.status) == (None, None)
    world.answers("k")
    assert (first.status, second.status) == (200, 422)
    assert world.ask("k", OTHER).status == 422
    assert len(world.appended) == 1


def test_whose_body_wins_is_decided_by_the_flow_and_not_by_the_desk() -> None:
    world = World()
    ours = world.ask("k")
    world.answers("k", digest_of(OTHER))  # another gateway had appended before
    assert ours.status == 422
    assert world.ask("k", OTHER).status == 200


def test_those_who_ask_while_the_request_is_in_flight_wait_for_its_answer() -> None:
    world = World()
    clients = [world.ask("k") for _ in range(3)]
    assert len(world.appended) == 1
    world.answers("k")
    assert [client.status for client in clients] == [200] * 3


def test_rows_may_come_after_the_receipt_or_before_it() -> None:
    for order in (((DIGEST, None), (None, b"[1]")), ((None, b"[1]"), (DIGEST, None))):
        world = World()
        client = world.ask("k")
        world.answers("k", *order[0])
        assert client.status is None
        world.answers("k", *order[1])
        assert client.told == [Reply(200, b"[1]")]


def test_another_body_is_refused_as_soon_as_the_receipt_has_come() -> None:
    world = World()
    first, second = world.ask("k"), world.ask("k", OTHER)
    world.answers("k", DIGEST, None)
    assert (first.status, second.status) == (None, 422)


def test_a_request_that_was_taken_but_not_answered_is_waited_for_and_not_appended_again() -> None:
    world = World(known={"k": Answer(1_000_000, DIGEST)})
    client = world.ask("k")
    assert (client.status, world.appended) == (None, [])
    world.answers("k", None, b"[2]")
    assert client.told == [Reply(200, b"[2]")]


def test_without_rows_the_receipt_is_the_acknowledgement() -> None:
    world = World(with_rows=False)
    client = world.ask("k")
    world.answers("k", DIGEST, None)
    assert client.told == [Reply(204)]
    assert world.ask("k").told == [Reply(204)]


def test_the_first_rows_count() -> None:
    world = World()
    world.ask("k")
    world.answers("k")
    world.answers("k", "another", b"[2]")
    assert world.ask("k").told == [Reply(200, b"[1]")]


def test_answers_stay_for_longer_than_the_flow_drops_what_is_repeated() -> None:
    world = World()
    world.ask("k")
    world.answers("k")
    world.date += KEEP + MARGIN - 1
    assert world.ask("k").status == 200
    world.date += 1
    assert world.ask("k").status is None
    assert len(world.appended) == 2
    world.answers("k", DIGEST, b"[2]")
    assert world.ask("k").told == [Reply(200, b"[2]")]


def test_requests_without_a_key_are_each_a_request() -> None:
    world = World()
    clients = [world.ask(None), world.ask(None)]
    first, second = world.appended
    assert first.key != second.key
    assert json.loads(first.value)["request_digest"] == ""
    world.answers(second.key, "", b"[2]")
    assert [client.status for client in clients] == [None, 200]


def test_while_the_app_does_not_answer_what_is_known_is_told_and_nothing_is_appended() -> None:
    world = World(why=refused(503, "the app is paused", again=5))
    world.known["k"] = Answer(1_000_000, DIGEST, b"[1]")
    assert world.ask("k").status == 200
    new = world.ask("new")
    assert (new.told, new.leave, world.appended) == ([world.why], None, [])
    world.why = None
    assert world.ask("new").status is None


def test_an_app_that_takes_nothing_is_asked_for_nothing_more_until_it_does() -> None:
    world = World()
    old = world.ask("k")
    world.now += STUCK + 0.1
    assert world.ask("new").status == 503
    assert world.ask("k").status is None  # it is in flight
    world.answers("k")
    assert old.status == 200
    assert world.ask("new").status is None


def test_a_request_that_is_taken_and_never_answered_holds_nobody_up() -> None:
    world = World()
    world.ask("k")
    world.answers("k", DIGEST, None)
    world.now += STUCK + 1
    assert world.ask("new").status is None


def test_one_request_that_is_never_taken_holds_nobody_up_while_others_are_taken() -> None:
    world = World()
    lost = world.ask("lost")
    world.now += 1
    world.ask("next")
    world.answers("next")
    world.now += STUCK + 1
    after = world.ask("after")
    assert (lost.status, after.status) == (None, None)
    world.now += STUCK + 0.1  # now nothing is taken any more
    assert world.ask("new").status == 503


def test_there_are_limits_to_what_waits() -> None:
    world = World(most=2)
    first = world.ask("a")
    world.ask("b")
    assert world.ask("c").told[0].again > 0
    world.answers("a")
    assert first.status == 200
    assert world.ask("c").status is None

    world = World(most=100)
    large = b'{"usd":"%b"}' % (b"x" * (MOST_BYTES // 2))
    clients = [world.ask(key, large) for key in "abc"]
    assert [client.status for client in clients] == [None, 503, 503]


def test_who_leaves_is_told_nothing_and_the_others_are() -> None:
    world = World()
    first, second = world.ask("k"), world.ask("k")
    assert first.leave is not None
    first.leave()
    world.answers("k")
    assert (first.status, second.status) == (None, 200)


def test_when_all_have_left_the_key_is_free_and_its_answer_is_in_the_table() -> None:
    world = World()
    client = world.ask("k")
    assert client.leave is not None
    client.leave()
    assert not world.desk.flying
    world.answers("k")
    assert world.ask("k").status == 200


def test_what_was_not_appended_is_told_to_all_who_wait_and_may_be_asked_again() -> None:
    world = World()
    clients = [world.ask("k"), world.ask("k")]
    world.desk.failed("k", refused(504, "unknown"))
    assert [client.status for client in clients] == [504, 504]
    world.ask("k")
    assert len(world.appended) == 2


BAD = [b"", b"[1]", b'"a"', b"{", b'{"a":1}x', b"\xff", b"null", b'{"request":"k"}', b'{"request_digest":1}']


@pytest.mark.parametrize("body", BAD)
def test_a_body_that_is_no_object_is_not_appended(body: bytes) -> None:
    world = World()
    assert world.ask("k", body).status == 400
    assert not world.appended
    assert not world.desk.flying


def test_a_request_of_which_no_row_is_left_is_answered_as_the_flow_would_answer_it() -> None:
    for with_rows, status in ((True, 200), (False, 204)):
        world = World(with_rows, reduces=True)
        first, second, other = world.ask("k"), world.ask("k"), world.ask("k", OTHER)
        [record] = world.appended
        assert (record.key, record.digest, record.rows, record.value) == ("k", DIGEST, [BODY], b"")
        world.desk.nothing_left(record.key, record.digest, world.date)
        assert [client.status for client in (first, second, other)] == [status, status, 422]
        assert first.told == [Reply(status, b"[]" if with_rows else b"")]
        assert not world.desk.flying
        # Nothing is known of it afterwards: who asks again gets what a reduction finds again.
        assert (world.ask("k").status, len(world.appended)) == (None, 2)


def test_a_key_that_the_flow_has_answered_is_refused_with_another_body_though_no_row_of_it_would_be_left() -> None:
    world = World(reduces=True)
    world.ask("k")
    world.answers("k")
    assert world.ask("k", b"[]").status == 422
    assert len(world.appended) == 1


def test_rows_that_are_reduced_count_as_requests_in_flight_until_they_are_answered() -> None:
    world = World(most=1, reduces=True)
    world.ask("a")
    assert world.ask("b").status == 503
    world.desk.nothing_left("a", DIGEST, world.date)
    world.now += STUCK + 1  # it has never waited for the app
    assert world.ask("b").status is None


def test_a_request_of_which_nothing_is_left_does_not_show_that_the_app_takes_any() -> None:
    world = World(reduces=True)
    world.ask("a")
    world.now += STUCK
    world.ask("b")
    world.desk.nothing_left("b", DIGEST, world.date)
    world.now += 1
    assert world.ask("c").status == 503


def test_a_body_that_does_not_fit_is_no_reason_to_refuse_another_one_with_its_key() -> None:
    misfit = refused(400, "the body does not fit")
    world = World()
    first, same, other = world.ask("k"), world.ask("k"), world.ask("k", OTHER)
    world.desk.failed("k", misfit)
    assert (first.told, same.told) == ([misfit], [misfit])
    assert (other.status, other.told[0].again) == (503, 1)
    assert not world.desk.flying
    assert world.ask("k", OTHER).status is None
    assert [json.loads(record.value)["usd"] for record in world.appended] == [1, 2]


@pytest.mark.parametrize("body", [b"[", b'[{"usd":1}', b"[1,]", b"[\xff]", b"[" * 5000])
def test_what_is_no_array_of_rows_is_not_appended(body: bytes) -> None:
    world = World(reduces=True)
    assert (world.ask("k", body).status, world.appended) == (400, [])
