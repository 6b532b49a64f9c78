"""Corrections: recorded steps that give another output when they are run again, put right by a step of their own.

    … · step 5 · step 6 · step 7 · correction 8 of 5..7 · step 9 · …

    said(5..7) + said(8)  =  should(5..7)           what the steps have said, and what the code that corrects makes of them
    digest(8)             =  digest of should(5..7)
    store.step            ∉  5..7                   the store goes from 4 to 8 in one write

A correction reads nothing, and is committed before any new step of the task, like any other step: all of it or nothing. A
replay that meets it compares 5..7 with it, all together, and no more with what they said at first. Where that differs in
turn, what corrects is corrected: the new one begins where the old one did, or after it.

What breaks otherwise: a store that was written at step 6 by the new code, before a crash, is opened after it, and nothing
that was said wrongly in 5..6 is ever seen again. One that the old code left at step 6 does not know what the correction
has made of 5 and 6: it gives way to a version before 5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Millis, Offset, OwnerId, Step
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import ClosedStep, InvariantError, Owned, ends, next_clock

Recorded = tuple[Offset, StepRecord]


def units(steps: Sequence[Recorded]) -> list[list[Recorded]]:
    """Recorded steps as they are compared: each by itself, but a correction together with all that it corrects."""
    found: list[list[Recorded]] = []
    end = len(steps)
    while end:
        last = steps[end - 1][1]
        first = last.step if last.corrects < 0 else last.corrects
        start = next(i for i, (_, record) in enumerate(steps) if record.step >= first)
        found.append(list(steps[start:end]))
        end = start
    return found[::-1]


def word(ran: Sequence[Sequence[Output]], last: StepRecord) -> str:
    """What a unit's last record would say as its digest, had its steps given this."""
    return together(ran) if last.corrects >= 0 else digest([o.writes for o in ran[0]])


def together(ran: Sequence[Sequence[Output]]) -> str:
    """One word for what several steps should have said."""
    words = " ".join(digest([o.writes for o in outputs]) for outputs in ran)
    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


def covered(owned: Owned, steps: Sequence[Recorded]) -> Step | None:
    """Where the correction begins that the store stands in the middle of; None if it stands in none."""
    if not owned.task.replayed:
        return None
    at = owned.opened().progress.step
    return min((r.corrects for _, r in steps if 0 <= r.corrects <= at < r.step), default=None)


def close_correction(owned: Owned, owner: OwnerId, now: Millis) -> ClosedStep:
    """The correction that the task waits for, ready to be committed; again, if it was aborted."""
    correction, last = owned.correction, owned.last
    if correction is None or last is None:
        raise InvariantError(f"task {owned.task.id} has nothing to correct")
    # Each attempt numbers the records anew.
    outputs = [Output(o.name, replace(o.writes)) for o in correction.outputs]
    step = close_step(owned, owner, last, ends(last), next_clock(last, now), outputs, owned.state())
    # What was to be moved still is: the next step goes on with it.
    move = last.move and msgspec.structs.replace(last.move, again=())
    step.record = msgspec.structs.replace(step.record, digest=correction.digest, corrects=correction.first, move=move)
    return step
