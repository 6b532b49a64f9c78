"""What becomes of the requests of one HTTP source, and who waits for what. It decides alone, and does no input or output
but to ask its ports.

    arrives ──known──▶ told                             nothing is appended
       │ └─────refused──▶ told                          nothing is appended
       ▼
    in flight: a key, and those here who wait for it    appended once, however many wait
       │ record of an answer ──complete──▶ all are told, each by its own digest
       │ no row is left      ────────────▶ the same, as if the flow had answered with no rows
       │ not appended        ────────────▶ all are told why
       └ time is up          ────────────▶ the one whose time it is

A record of an answer goes into the table first, and then, in the thread of the desk, to those who wait. A request looks in
the table and begins to wait in one call. So an answer that the look has missed comes to it later.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

import msgspec

from falkirk.connectors.http.app import MADE_UP
from falkirk.connectors.http.messages import Asked, Reply, refused
from falkirk.runtime.gateway.answers import Answer, digest_of
from falkirk.runtime.gateway.table import Heard
from falkirk.stream.definition.requests import DIGEST, MARGIN, REQUEST

STUCK = 5.0
"""Seconds after which the app is not asked for more, if it has taken neither a request nor any that came after it."""

MOST_BYTES = 64 << 20
"""Of requests in flight."""

NOT_TAKEN = refused(503, "another request had this Idempotency-Key at the same moment, and was refused", again=1)

Tell = Callable[[Reply], None]


class Answers(Protocol):
    """The answers that are known."""

    def get(self, key: str) -> Answer | None:
        """Of a key."""
        ...


@dataclass(frozen=True, slots=True)
class ToAppend:
    """A record for the topic of requests."""

    key: str
    value: bytes
    """The whole record; b"": it is made of the rows."""
    digest: str = ""
    rows: Sequence[bytes] = ()
    """Of a request to a source with `reduce=`, as the client has sent them."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A request that waits."""

    digest: str
    tell: Tell


@dataclass(slots=True)
class InFlight:
    """A key that is waited for."""

    digest: str
    """Of the body with which it began."""
    size: int
    """Bytes of that body."""
    answer: Answer = Answer(0)
    waiters: list[Waiter] = field(default_factory=list)


@dataclass(slots=True)
class Desk:
    """Of one source. Everything happens in one thread. Seconds are of a clock that only goes on; milliseconds are dates."""

    keep: int
    """Milliseconds for which keys count."""
    with_rows: bool
    """Whether the flow answers with rows."""
    most: int
    """Requests in flight."""
    table: Answers
    append: Callable[[ToAppend], None]
    why_not: Callable[[], Reply | None]
    """Why the app does not take requests now; None: it does."""
    reduces: bool = False
    """Whether a request has rows, which are reduced before they are appended."""
    flying: dict[str, InFlight] = field(default_factory=dict)
    _untaken: dict[str, float] = field(default_factory=dict)
    """Keys without a receipt, and since when they are in flight: the oldest first. Without those that were overtaken by one
    that the app has taken: they wait for a slower task, or will never be taken."""
    _size: int = 0

    def arrives(self, asked: Asked, tell: Tell, now: float, date: int) -> Callable[[], None] | None:
        """A request has come. It is told its reply, at once or later. Returns what ends its waiting; None: nothing waits."""
        key = f"{MADE_UP}{uuid.uuid4().hex}" if asked.key is None else asked.key
        digest = "" if asked.key is None else digest_of(asked.body)
        if (flying := self.flying.get(key)) is not None:
            return self._wait(key, flying, Waiter(digest, tell))
        known = None if asked.key is None else self.table.get(key)
        if known is not None and known.at + self.keep + MARGIN > date:
            if (reply := known.reply(digest, with_rows=self.with_rows)) is not None:
                tell(reply)
                return None
            # The flow has taken it, and its rows are still to come.
            return self._wait(key, self._fly(key, now, digest, 0, known), Waiter(digest, tell))
        made = self._refusal(len(asked.body), now) or self._made(asked, key, digest)
        if isinstance(made, Reply):
            tell(made)
            return None
        leave = self._wait(key, self._fly(key, now, digest, len(asked.body), Answer(0)), Waiter(digest, tell))
        self.append(made)
        return leave

    def heard(self, records: list[Heard]) -> None:
        """These records of the topic of answers are in the table now."""
        for one in records:
            if one.digest is not None and (since := self._untaken.pop(one.key, None)) is not None:
                self._overtaken(since)
            if (flying := self.flying.get(one.key)) is None:
                continue
            flying.answer = flying.answer.with_record(one.digest, one.rows, one.at, self.keep)
            self._tell_known(one.key, flying)

    def nothing_left(self, key: str, digest: str, date: int) -> None:
        """No row of this request is left, and nothing is appended. Any gateway finds the same whenever it gets this body,
        so that the flow never sees the request."""
        self._untaken.pop(key, None)  # the app has not taken it
        self.heard([Heard(key, digest, b"[]", date)])

    def failed(self, key: str, reply: Reply) -> None:
        """A request was not appended, or it is not known whether it was. A reply that is final is about its body: who waits
        here with another one may ask again."""
        if (flying := self.flying.get(key)) is not None:
            for_all = bool(reply.again)
            self._tell(key, flying, lambda who: reply if for_all or who.digest == flying.digest else NOT_TAKEN)

    def give_up(self, reply: Reply) -> None:
        """Nothing is waited for any more: all are told this."""
        for key, flying in list(self.flying.items()):
            self._tell(key, flying, lambda _: reply)

    def stuck(self, now: float) -> bool:
        """Whether the app takes nothing, although no report says why."""
        oldest = next(iter(self._untaken.values()), now)
        return now - oldest > STUCK

    def _overtaken(self, since: float) -> None:
        """A request has been taken that came then."""
        for key in [key for key, _ in takewhile(lambda one: one[1] <= since, self._untaken.items())]:
            del self._untaken[key]

    def _made(self, asked: Asked, key: str, digest: str) -> ToAppend | Reply:
        if self.reduces:
            rows = rows_of(asked.body, lines=asked.lines)
            return rows if isinstance(rows, Reply) else ToAppend(key, b"", digest, rows)
        value = record_value(asked.body, key, digest)
        return value if isinstance(value, Reply) else ToAppend(key, value)

    def _refusal(self, size: int, now: float) -> Reply | None:
        """Why this request is not let in; None: it is."""
        if (why := self.why_not()) is not None:
            return why
        if self.stuck(now):
            return refused(503, "the app does not answer: it recovers, or cannot keep up", again=2)
        if len(self.flying) >= self.most or self._size + size > MOST_BYTES:
            return refused(503, "too many requests are waiting", again=1)
        return None

    def _fly(self, key: str, now: float, digest: str, size: int, answer: Answer) -> InFlight:
        self.flying[key] = flying = InFlight(digest, size, answer)
        self._size += size
        if answer.digest is None:
            self._untaken[key] = now
        return flying

    def _wait(self, key: str, flying: InFlight, waiter: Waiter) -> Callable[[], None]:
        flying.waiters.append(waiter)
        self._tell_known(key, flying)

        def leave() -> None:
            if waiter in flying.waiters:
                flying.waiters.remove(waiter)
                self._land(key, flying)

        return leave

    def _tell_known(self, key: str, flying: InFlight) -> None:
        self._tell(key, flying, lambda waiter: flying.answer.reply(waiter.digest, with_rows=self.with_rows))

    def _tell(self, key: str, flying: InFlight, reply_to: Callable[[Waiter], Reply | None]) -> None:
        """Tell those who wait what can be told now."""
        left = []
        for waiter in flying.waiters:
            if (reply := reply_to(waiter)) is None:
                left.append(waiter)
            else:
                waiter.tell(reply)
        flying.waiters = left
        self._land(key, flying)

    def _land(self, key: str, flying: InFlight) -> None:
        """It is no longer in flight if nobody waits for it."""
        if not flying.waiters and self.flying.get(key) is flying:
            del self.flying[key]
            self._untaken.pop(key, None)
            self._size -= flying.size


_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def rows_of(body: bytes, *, lines: bool) -> Sequence[bytes] | Reply:
    """The rows of a request: the elements of an array, or the lines that are not empty; or else the body is one.

    >>> rows_of(b' [{"usd": 1}, {"usd": 2}]', lines=False), rows_of(b'{"usd": 1}', lines=False)
    ([b'{"usd": 1}', b'{"usd": 2}'], [b'{"usd": 1}'])
    >>> rows_of(b'{"usd": 1}\\r\\n\\n{"usd": 2}\\n', lines=True)
    [b'{"usd": 1}', b'{"usd": 2}']
    """
    if lines:
        return [line for each in body.split(b"\n") if (line := each.strip())]
    if body.lstrip()[:1] != b"[":
        return [body]
    try:
        return list(map(bytes, _array(body)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refused(400, "the body is not a JSON array")


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def record_value(body: bytes, key: str, digest: str) -> bytes | Reply:
    """The record of a request: its body, with the fields by which the flow knows it; or why there can be none.

    >>> record_value(b'{"usd": 1.50}', "k", "d")
    b'{"usd":1.50,"request":"k","request_digest":"d"}'
    >>> record_value(b"[1]", "k", "d").body
    b'{"error":"the body is not a JSON object"}'
    >>> record_value(b'{"request": 1}', "k", "d").status
    400
    """
    try:
        fields: dict[str, Any] = {**_fields(body)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refused(400, "the body is not a JSON object")
    if taken := [name for name in (REQUEST, DIGEST) if name in fields]:
        return refused(400, f"field {taken[0]!r}: the body must not have it")
    fields[REQUEST], fields[DIGEST] = key, digest
    return msgspec.json.encode(fields)
