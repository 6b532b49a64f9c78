"""Corrections: when recorded steps give another output if run again, a separate step corrects them.

    … · step 5 · step 6 · step 7 · correction 8 of 5..7 · step 9 · …

    said(5..7) + said(8)  =  should(5..7)           what the steps have said; what the correcting code makes of them
    digest(8)             =  digest of should(5..7)
    store.step            ∉  5..7                   the store goes from 4 to 8 in one write

A correction reads nothing. It is committed before any new step of the task, like any other step: all of it or nothing. A
replay that reaches it compares 5..7 together with it, and no longer with what they said at first. If that differs too,
the correction is corrected: the new one begins where the old one did, or after it.

What breaks otherwise: a store that the new code wrote at step 6, before a crash, is opened after the crash, and what was
said wrongly in 5..6 is never found again. A store that the old code left at step 6 lacks what the correction made of 5
and 6: a version before 5 replaces it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Millis, OwnerId, Step
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import RecordedStep, StepRecord
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import ClosedStep, InvariantError, Owned, ends, next_clock


def units(steps: Sequence[RecordedStep]) -> list[list[RecordedStep]]:
    """Recorded steps as they are compared: each by itself, but a correction with all the steps it corrects."""
    found: list[list[RecordedStep]] = []
    end = len(steps)
    while end:
        last = steps[end - 1][1]
        first = last.step if last.corrects < 0 else last.corrects
        start = next(i for i, (_, record) in enumerate(steps) if record.step >= first)
        found.append(list(steps[start:end]))
        end = start
    return found[::-1]


def unit_digest(ran: Sequence[Sequence[Output]], last: StepRecord) -> str:
    """The digest of a unit's last record, if its steps had given this output."""
    return joint_digest(ran) if last.corrects >= 0 else digest([o.writes for o in ran[0]])


def joint_digest(ran: Sequence[Sequence[Output]]) -> str:
    """One digest of what several steps should have said."""
    words = " ".join(digest([o.writes for o in outputs]) for outputs in ran)
    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


def covered(owned: Owned, steps: Sequence[RecordedStep]) -> Step | None:
    """Where a correction begins, if the store stands in the middle of its steps; else None."""
    at = owned.opened().progress.step
    return min((r.corrects for _, r in steps if 0 <= r.corrects <= at < r.step), default=None)


def close_correction(owned: Owned, owner: OwnerId, now: Millis) -> ClosedStep:
    """The task's pending correction, ready to be committed; again, if it was aborted."""
    correction, last = owned.correction, owned.last
    if correction is None or last is None:
        raise InvariantError(f"task {owned.task.id} has nothing to correct")
    # Each attempt numbers the records again.
    outputs = [Output(o.name, replace(o.writes)) for o in correction.outputs]
    step = close_step(owned, owner, last, ends(last), next_clock(last, now), outputs, owned.state())
    # A pending move stays pending: the next step continues it.
    move = last.move and msgspec.structs.replace(last.move, again=())
    step.record = msgspec.structs.replace(step.record, digest=correction.digest, corrects=correction.first, move=move)
    return step
