"""Records of the topic of answers, and what they say together."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from falkirk.connectors.http.messages import Reply, refused


class Said(msgspec.Struct, frozen=True):
    """A record's value (`falkirk.stream.operators.sinks.answer`)."""

    digest: str | None = None
    rows: msgspec.Raw = msgspec.Raw()


decode = msgspec.json.Decoder(Said).decode


class Answer(NamedTuple):
    """What is known of a request's answer.

    >>> answer = Answer(at=5).with_record("ab", None, 10, keep=100).with_record("cd", b"[1]", 12, keep=100)
    >>> answer
    Answer(at=10, digest='ab', rows=b'[1]')
    >>> answer.with_record("cd", None, 111, keep=100)
    Answer(at=111, digest='cd', rows=None)
    """

    at: int
    """When it was first heard of, in milliseconds, by the broker's clock."""
    digest: str | None = None
    """Of the body that the flow has taken."""
    rows: bytes | None = None
    """JSON."""

    def with_record(self, digest: str | None, rows: bytes | None, at: int, keep: int) -> Answer:
        """With another record under the same key. The first digest and the first rows count, unless the key has been free
        again in between, for it is `keep` milliseconds later. Rows without a digest that come so late are still those of the
        request that waits for them: another one would have begun with its digest."""
        awaited = digest is None and self.digest is not None and self.rows is None
        if (self.digest is None and self.rows is None) or (at - self.at > keep and not awaited):
            return Answer(at, digest, rows)
        return Answer(self.at, digest if self.digest is None else self.digest, rows if self.rows is None else self.rows)

    def reply(self, digest: str, *, with_rows: bool) -> Reply | None:
        """What a client is told whose body has this digest. None: it must wait. `with_rows`: whether the flow answers with
        rows.

        >>> answer = Answer(5, "ab", b"[]")
        >>> answer.reply("ab", with_rows=True), answer.reply("ab", with_rows=False).status
        (Reply(status=200, body=b'[]', again=0), 204)
        >>> answer.reply("xy", with_rows=True).status, Answer(5, "ab").reply("ab", with_rows=True)
        (422, None)
        """
        if self.digest is None:
            return None
        if self.digest != digest:
            return OTHER_BODY
        if not with_rows:
            return Reply(204)
        return None if self.rows is None else Reply(200, self.rows)


OTHER_BODY = refused(
    422, "another request had this Idempotency-Key, with another body", hint="give each request a key of its own"
)


def digest_of(body: bytes) -> str:
    """Tells bodies apart.

    >>> len(digest_of(b"{}"))
    32
    """
    return hashlib.blake2b(body, digest_size=16).hexdigest()
