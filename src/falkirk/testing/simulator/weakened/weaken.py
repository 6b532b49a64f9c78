"""Protocols that lack a clause, to show what the clause is for.

Each patches the real protocol from outside while a `with` lasts; nothing in the protocol knows of this. The patches come from
`weak` and `weak_transactions`. Each has the smallest plan found that breaks it but not the real protocol. Some clauses have
two guards: then the plan breaks a protocol that lacks both.

    layer 1    the group's generation, checked when offsets are sent
    layer 2    names, nonces and fences
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from falkirk.checkpoint import ownerships, pipeline, reading, takeover, transaction
from falkirk.checkpoint.regimes import Eager, Lazy, eager, lazy
from falkirk.checkpoint.worker import aborts, core
from falkirk.testing.simulator import domain as domain_module
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.edges.stages import TwoStages
from falkirk.testing.simulator.explore import (
    Failure,
    Kinds,
    attempt,
    crashes,
    moves,
    naps,
    others,
    outages,
    pauses,
    sample,
    smallest,
)
from falkirk.testing.simulator.flows.flowing import Flowing
from falkirk.testing.simulator.plan import (
    FOREVER,
    Age,
    Change,
    Crash,
    Doubt,
    Expel,
    Jump,
    Move,
    Outage,
    Pause,
    Plan,
    Takes,
)
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.weakened import weak, weak_transactions
from falkirk.testing.simulator.weakened.weak_broadcasts import BROADCASTS
from falkirk.testing.simulator.weakened.weak_coordinators import COORDINATORS
from falkirk.testing.simulator.weakened.weak_copies import COPIES
from falkirk.testing.simulator.weakened.weak_disks import DISKS
from falkirk.testing.simulator.weakened.weak_domains import DOMAINS
from falkirk.testing.simulator.weakened.weak_edges import EDGES
from falkirk.testing.simulator.weakened.weak_joins import JOINS
from falkirk.testing.simulator.weakened.weak_lines import LINES
from falkirk.testing.simulator.weakened.weak_moves import MOVES
from falkirk.testing.simulator.weakened.weak_rebuilds import REBUILDS
from falkirk.testing.simulator.weakened.weak_recoveries import RECOVERIES
from falkirk.testing.simulator.weakened.weak_shadows import SHADOWS
from falkirk.testing.simulator.weakened.weak_windows import WINDOWS
from falkirk.testing.simulator.weakened.weakening import (
    COMMIT,
    NAME,
    OFFERED,
    ONE,
    ONE_LAZY,
    Patch,
    Schedule,
    Weakening,
)


@contextmanager
def lacking(*names: str) -> Iterator[None]:
    """Until the block ends, the protocol lacks these clauses.

    >>> with lacking("apply-first"):
    ...     print(WEAKENINGS["apply-first"].breaks.attempt().what)
    Broken: store: counts/0 is written at step 0, but -1 is committed
    """
    with ExitStack() as stack:
        for p in (p for name in names for p in WEAKENINGS[name].patches):
            stack.enter_context(patch.object(p.target, p.name, p.double))
        yield


CHANGED = Change(worker=0, on=COMMIT + ": done", at=5)

WEAKENINGS: dict[str, Weakening] = (
    {
        "anonymous-released": Weakening(
            "`released` does not say which name it ends: it covers every name before it",
            (Patch(ownerships.Ownerships, "add", weak.add_and_forget_at_any_release),),
            Schedule(
                ONE,
                Plan(
                    (
                        Move(worker=0, on=OFFERED, at=2, task=0, to=1),
                        Pause(worker=0, on="release: sends offsets: done", turns=47),
                        Pause(worker=1, on=OFFERED),
                    ),
                    lazy_broker=True,
                ),
            ),
        ),
        "release-unfinished": Weakening(
            "an owner that has not fenced its predecessors writes `released` too",
            (
                Patch(core, "releasable", weak.releasable_unfinished),
                Patch(takeover, "recover", weak.recover_unless_revoked),
            ),
            Schedule(
                ONE,
                Plan(
                    (Pause(worker=0, on=OFFERED, at=2), Move(worker=1, on="main: is told: assigned", task=0, to=2)),
                    lazy_broker=True,
                ),
                workers=3,
            ),
        ),
        "no-own-offset": Weakening(
            "transactions carry no offsets: the generation is never checked",
            (Patch(SimLog, "send_offsets", weak_transactions.send_no_offsets),),
            Schedule(
                ONE, Plan((Pause(worker=0, on="committer: has queued records for steps", at=2),), lazy_broker=True)
            ),
            lacks_too=("no-fence",),
        ),
        "no-membership": Weakening(
            "offsets are sent as those of generation −1, which the broker accepts",
            (Patch(SimLog, "send_offsets", weak_transactions.send_offsets_as_nobody),),
            Schedule(
                ONE, Plan((Pause(worker=0, on="committer: has queued records for steps", at=2),), lazy_broker=True)
            ),
            lacks_too=("no-fence",),
        ),
        "no-fence": Weakening(
            "a take-over fences nobody",
            (Patch(ownerships.Ownerships, "unclean", weak.nobody),),
            Schedule(ONE, Plan((Pause(worker=0, on=OFFERED, at=2),), lazy_broker=True)),
        ),
        "fence-read-name": Weakening(
            "take over by fence, read, name",
            (
                Patch(takeover, "name", weak.name_nothing),
                Patch(takeover, "admit", weak.name_at_last),
                Patch(takeover, "last_named", weak.as_it_should_be),
            ),
            Schedule(
                Toy(tasks=2, recovery=Lazy, inputs=2),
                Plan((Pause(worker=0, on="admission: sends EndTxn(commit)", turns=85),), lazy_broker=True),
            ),
            lacks_too=("no-own-offset",),
        ),
        "ignore-last-name": Weakening(
            "neither a doubt nor a take-over asks whose name is last",
            (
                Patch(transaction, "taken_over", weak.never),
                Patch(takeover, "taken_over", weak.never),
                Patch(takeover, "last_named", weak.as_it_should_be),
                Patch(takeover, "read_to_marks", weak.read_to_marks_whoever_is_named),
            ),
            Schedule(ONE, Plan((Pause(worker=0, on=COMMIT, at=2, turns=113),), lazy_broker=True)),
            lacks_too=("no-own-offset",),
        ),
        "committed-goes-on": Weakening(
            "a doubtful step that is found committed lets its owner go on, whoever is named last",
            (Patch(transaction, "resolve", partial(weak_transactions.resolve, found_first=True)),),
            Schedule(ONE, Plan((Pause(worker=0, on=COMMIT, at=1, turns=92, travels=True),), lazy_broker=True)),
            lacks_too=("no-own-offset",),
        ),
        "no-nonce": Weakening(
            "the comparison after a doubt ignores the nonce",
            (Patch(transaction, "is_ours", weak_transactions.is_ours_by_division),),
            Schedule(
                ONE_LAZY,
                Plan((Pause(worker=0, on=COMMIT, at=2, turns=80), Pause(worker=1, on=COMMIT + ": done", at=1))),
            ),
            lacks_too=("committed-goes-on",),
        ),
        "zombie-continues": Weakening(
            "after a doubt: a new producer, and try again without reading",
            (Patch(transaction, "resolve", weak_transactions.resolve_by_trying_again),),
            Schedule(ONE, Plan((Doubt(worker=0, on=COMMIT + ": done", at=1),))),
        ),
        "read-then-producer": Weakening(
            "after a doubt: read first, then make the new producer",
            (Patch(transaction, "resolve", partial(weak_transactions.resolve, producer="after")),),
            Schedule(ONE, Plan((Doubt(worker=0, on=COMMIT, at=2),))),
        ),
        "reuse-producer": Weakening(
            "after a doubt: abort with the same producer, read, go on with it",
            (
                Patch(transaction, "resolve", partial(weak_transactions.resolve, producer="kept")),
                Patch(SimLog, "_forget", weak_transactions.keep_the_producer),
            ),
            Schedule(ONE, Plan((Doubt(worker=0, on=COMMIT, at=2, order=Order.DELAY, late=24),))),
        ),
        "trust-return": Weakening(
            "a commit that returned is trusted although a connection broke under it",
            (Patch(SimLog, "_ended", weak_transactions.trust_the_return),),
            Schedule(ONE, Plan((Doubt(worker=0, on=COMMIT, order=Order.TWICE, late=13),))),
        ),
        "renew-blindly": Weakening(
            "where a connection broke: a new producer, and on without reading whose name is last",
            (Patch(SimLog, "commit", weak_transactions.commit_and_renew_blindly),),
            Schedule(
                ONE,
                Plan(
                    (Doubt(worker=0, on=COMMIT, order=Order.TWICE), Pause(worker=0, on=COMMIT + ": done", turns=90)),
                    lazy_broker=True,
                ),
            ),
            lacks_too=("no-own-offset",),
        ),
        "read-to-lso": Weakening(
            "read to the last stable offset, not to the high watermark",
            (Patch(SimLog, "mark", weak_transactions.last_stable_offsets),),
            Schedule(ONE, Plan((Pause(worker=0, on=NAME),), lazy_broker=True)),
        ),
        "ask-for-the-end": Weakening(
            "the end is asked for, without a mark, and a broker answers that is the leader no more",
            (Patch(SimLog, "mark", weak_transactions.ends_at_a_former_leader),),
            Schedule(ONE, Plan((Doubt(worker=0, on=COMMIT + ": done", at=1),))),
        ),
        "hw-before-fence": Weakening(
            "ask for the high watermarks before fencing",
            (
                Patch(takeover, "fence", weak.fence_when_marked),
                Patch(takeover, "recover", weak.recover_with_early_marks),
            ),
            Schedule(ONE, Plan((Pause(worker=0, on=OFFERED, at=2, turns=51),), lazy_broker=True)),
        ),
        "names-at-committed": Weakening(
            "5(b) reads the names at read_committed, to the last stable offset",
            (Patch(reading, "read_ownerships", weak.read_ownerships_committed),),
            Schedule(ONE, Plan((Pause(worker=0, on=NAME),), lazy_broker=True)),
            lacks_too=("no-fence-while-waiting",),
        ),
        "no-fence-while-waiting": Weakening(
            "whoever waits for an open transaction does not fence its owner",
            (Patch(reading, "fence_openers", weak.fence_nobody_while_waiting),),
            Schedule(
                ONE,
                Plan((Move(worker=0, on=OFFERED, task=0, to=1), Pause(worker=0, on="release: sends EndTxn(commit)"))),
            ),
        ),
        "fence-when-revoked": Weakening(
            "whoever takes a task over fences on when the group has given it to another",
            (Patch(takeover, "has_failed", weak.failed_when_another_is_named),),
            Schedule(
                Toy(tasks=2, recovery=Lazy),
                Plan((Expel(worker=0, at=16), Takes(worker=0, on="fences w1: done", turns=10))),
            ),
            lacks_too=("name-at-once",),
        ),
        "name-at-once": Weakening(
            "a name that fails is tried again at once, however often",
            (Patch(aborts.Aborts, "named", weak.never),),
            Schedule(
                Toy(tasks=2, recovery=Lazy),
                Plan((Expel(worker=0, at=16), Takes(worker=0, on="fences w1: done", turns=10))),
            ),
            lacks_too=("fence-when-revoked",),
        ),
        "no-released": Weakening(
            "leave without `released`",
            (Patch(transaction, "release", weak.release_nothing),),
            Schedule(ONE, Plan((Move(worker=0, on=COMMIT, at=1, task=0, to=1),))),
        ),
        "apply-first": Weakening(
            "apply to the store before the commit",
            (Patch(transaction, "commit_steps", weak_transactions.commit_steps_applied_first),),
            Schedule(ONE, Plan()),
        ),
        "keep-staged": Weakening(
            "step n+1 goes on when step n was aborted",
            (Patch(pipeline.Pipeline, "settle", weak_transactions.settle_keeping_staged),),
            Schedule(ONE, Plan((Doubt(worker=0, on="committer: sends offsets", at=1, order=Order.REFUSE),))),
        ),
        "own-clock": Weakening(
            "a step's clock is its host's, whatever the last step's was",
            (Patch(domain_module, "next_clock", weak_transactions.now),),
            Schedule(ONE, Plan((Jump(worker=0, on=COMMIT, at=1, millis=-1_000),))),
        ),
        "stale-version": Weakening(
            "a store that trimming has overtaken is rolled forward over what is left",
            (Patch(lazy, "overtaken", weak.never),),
            Schedule(
                Toy(tasks=1, recovery=Lazy, inputs=14),
                Plan(
                    (
                        Move(worker=0, on=COMMIT + ": done", at=3, task=0, to=1),
                        Outage(worker=1, on=COMMIT + ": done", at=7, turns=100),
                        Move(worker=1, on=COMMIT + ": done", at=7, task=0, to=0),
                    )
                ),
            ),
        ),
        "old-tombstones": Weakening(
            "a store older than its changelog's tombstones is rolled forward",
            (Patch(eager, "TOMBSTONE_RETENTION", 10**15),),
            Schedule(
                ONE,
                Plan(
                    (
                        Move(worker=0, on=COMMIT + ": done", at=2, task=0, to=1),
                        Move(worker=1, on=COMMIT + ": done", task=0, to=0),
                        Age(worker=1, on="main: is told: revoked"),
                    )
                ),
            ),
        ),
        "corrected-digests": Weakening(
            "steps that were corrected are compared one by one, with what they said at first",
            (Patch(lazy, "units", weak_transactions.each_alone),),
            Schedule(
                ONE_LAZY, Plan((CHANGED, Change(worker=0, on=COMMIT + ": done", at=6, new=False, corrects=False)))
            ),
        ),
        "nameless-correction": Weakening(
            "a correction does not say what it corrects",
            (Patch(domain_module, "close_correction", weak_transactions.close_as_any_step),),
            Schedule(
                ONE_LAZY, Plan((CHANGED, Change(worker=0, on=COMMIT + ": done", at=6, new=False, corrects=False)))
            ),
        ),
        "store-before-correction": Weakening(
            "the store takes the steps that are run again before their correction is committed",
            (Patch(lazy, "roll_divisions", weak_transactions.roll_written_along),),
            Schedule(ONE_LAZY, Plan((CHANGED, Crash(worker=0, on=COMMIT, at=12, keep=FOREVER)))),
        ),
        "corrected-store": Weakening(
            "a store in the middle of what was corrected is rolled forward",
            (Patch(lazy, "covered", weak_transactions.nowhere),),
            Schedule(
                ONE_LAZY,
                Plan(
                    (
                        Change(worker=0, on=COMMIT + ": done", at=5, keep=FOREVER, back_after=150),
                        Crash(worker=1, on=COMMIT + ": done", back_after=300),
                    )
                ),
            ),
        ),
    }
    | RECOVERIES
    | DOMAINS
    | EDGES
    | DISKS
    | COORDINATORS
    | COPIES
    | LINES
    | REBUILDS
    | SHADOWS
    | MOVES
    | JOINS
    | BROADCASTS
    | WINDOWS
)


def broken(name: str) -> Failure | None:
    """What the schedule of a weakening breaks when its clauses are missing."""
    with lacking(name, *WEAKENINGS[name].lacks_too):
        return WEAKENINGS[name].breaks.attempt()


def search(name: str, seeds: Sequence[int]) -> Schedule | None:
    """A run that breaks it, drawn from a seed and shrunk. None: no seed breaks it."""
    toys: tuple[Toy, ...] = (ONE, ONE_LAZY, Toy(2, recovery=Eager), Toy(2, recovery=Lazy))
    kinds: Sequence[Kinds] = (crashes, pauses, naps, others, others)
    if isinstance(toy := WEAKENINGS[name].breaks.toy, TwoStages | Flowing):
        toys, kinds = (toy,), (crashes, pauses, outages, moves, others)
    with lacking(name, *WEAKENINGS[name].lacks_too):
        for seed in seeds:
            make = partial(replace, toys[seed % len(toys)])
            plan = sample(seed, kinds=kinds)
            if failure := attempt(make, plan, seed=seed, rate=(0.0, 0.1, 0.4)[seed % 3]):
                return Schedule(make(), smallest(make, failure).plan)
    return None
