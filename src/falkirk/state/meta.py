"""What a store says about itself: whose state it holds, and how far it is.

Both are in the database, under keys above every shard's, so they are part of each atomic write and each version.
"""

from __future__ import annotations

import struct

import msgspec

from falkirk.errors import StateError
from falkirk.state import schema
from falkirk.state.store import EMPTY, Identity, Progress

META = b"\xff\xff"
"""Where keys about the store begin: far above the shards."""

PROGRESS_KEY = META + b"progress"
IDENTITY_KEY = META + b"identity"

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises for damaged JSON. For text that is not UTF-8 it is Python's error."""

_PROGRESS = {1: struct.Struct(">Bqqqq"), 2: struct.Struct(">Bqqqqq"), 3: struct.Struct(">Bqqqqqq")}
"""By format: 1 for a state without a base, 2 with a base, 3 with a part of the changelog after its step."""


def encode_progress(progress: Progress) -> bytes:
    """Progress as bytes.

    >>> decode_progress(encode_progress(Progress(7, 8, 9, 10)), where="")
    Progress(step=7, step_offset=8, log_offset=9, clock=10, base=-1, ahead=-1)
    >>> decode_progress(encode_progress(Progress(7, 8, 9, 10).partly(20, 10)), where="").ahead
    20
    """
    numbers = (progress.step, progress.step_offset, progress.log_offset, progress.clock)
    if progress.ahead >= 0:
        return _PROGRESS[3].pack(3, *numbers, progress.base, progress.ahead)
    return _PROGRESS[1].pack(1, *numbers) if progress.base < 0 else _PROGRESS[2].pack(2, *numbers, progress.base)


def decode_progress(data: bytes | None, *, where: str) -> Progress:
    """The inverse. Raises StateError."""
    layout = _PROGRESS.get(data[0]) if data else None
    if data is None or layout is None or len(data) != layout.size:
        raise damaged("it does not say how far it is", where)
    return Progress(*layout.unpack(data)[1:])


def encode_identity(identity: Identity) -> bytes:
    """Identity as JSON.

    >>> encode_identity(Identity("app", "stats/3", "f00", "stats v1"))
    b'{"app":"app","task":"stats/3","fingerprint":"f00","schema":"stats v1","incarnation":""}'
    """
    return msgspec.json.encode(identity)


def decode_identity(data: bytes | None, *, where: str) -> Identity:
    """The inverse. Raises StateError."""
    try:
        return _decode_identity(data or b"")
    except UNREADABLE as error:
        raise damaged("it does not say whose state it holds", where) from error


def damaged(why: str, where: str) -> StateError:
    """A StateError for a store that exists but cannot be used."""
    return StateError(
        f"the state cannot be read: {why}",
        where=where,
        hint="move the folder away: the task is then restored from its checkpoint or its changelog",
    )


def check_identity(found: Identity, wanted: Identity, *, where: str) -> None:
    """Only the task whose state it holds opens a store, with the schema it was written with or one that follows it:

        found.app = wanted.app,  found.incarnation = wanted.incarnation,  found.task = wanted.task,
        found.fingerprint = wanted.fingerprint  or  schema.follows(found.schema, wanted.schema)

    A caller that checks the schema itself gives no fingerprint.

    Raises StateError otherwise, with the operators whose state differs.
    """
    if (found.app, found.task) != (wanted.app, wanted.task):
        raise StateError(
            f"this is the state of task {found.task} of app '{found.app}', not of {wanted.task} of '{wanted.app}'",
            where=where,
            hint="give each app a name or a state directory of its own; where this was copied here by mistake, move it away: "
            "the task is then restored from its checkpoint or its changelog",
        )
    if found.incarnation != wanted.incarnation:
        raise StateError(
            f"this is the state of an earlier app '{found.app}', which was deleted or reset: its steps are others",
            where=where,
            hint="move it away: no app can use it any more",
        )
    same = found.fingerprint == wanted.fingerprint or not wanted.fingerprint
    if not same and not (found.schema and schema.follows(found.schema, wanted.schema)):
        raise StateError(
            f"the state's schema has changed:\n{schema.difference(found.schema, wanted.schema)}",
            where=where,
            hint="undo the change, or give the flow another name: it then starts from scratch, beside this one; or let this "
            "one start from scratch, with falkirk reset",
        )


def check_advances(before: Progress, after: Progress) -> None:
    """A write never takes a store back:

        before.step ≤ after.step,  before.step_offset ≤ after.step_offset,  before.log_offset ≤ after.log_offset
        before.applied ≤ after.applied,  or the state was at no step and comes to one
        before.base = after.base,  or the state was empty before

    Raises StateError otherwise: an old step, applied again, would undo the newer ones.
    """
    if not (
        before.step <= after.step
        and before.step_offset <= after.step_offset
        and before.log_offset <= after.log_offset
        and (before.applied <= after.applied or before.step < 0 <= after.step)
        and (before.base == after.base or before == EMPTY)
    ):
        raise StateError(
            f"a write would take the state back from {before} to {after}",
            hint="this is a fault in Falkirk; restart: the state on disk is whole",
        )


# Made at import: the first decoding of a type builds its metadata, and two threads that do so at once can crash.
_decode_identity = msgspec.json.Decoder(Identity).decode
