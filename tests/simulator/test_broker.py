"""The simulated cluster behaves as Kafka was seen to behave. Each test is one observed fact."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.ids import TopicPartition
from falkirk.testing.simulator.cluster.broker import OFFSETS, Pending, Sent, SimBroker
from falkirk.testing.simulator.cluster.coordinator import Concurrent, Fenced, Phase
from falkirk.testing.simulator.cluster.group import (
    NOBODY,
    Event,
    Group,
    IllegalGeneration,
    InstanceFenced,
    Member,
    UnknownMember,
)
from falkirk.testing.simulator.cluster.partition import OutOfRange

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker(group=Group(2))
    broker.create("a", 2)
    return broker


def put(broker: SimBroker, epoch: int, tp: TopicPartition, value: bytes, owner: str = "w", key: bytes = b"k") -> None:
    broker.produce(owner, epoch, tp, [Sent(key, value, None, [])])


def visible(broker: SimBroker, tp: TopicPartition) -> list[bytes | None]:
    return [e.value for e in broker[tp].committed(broker[tp].start, broker[tp].end)[0]]


def init(broker: SimBroker, owner: str) -> int:
    """As a client does: ask until the older transaction has its markers."""
    while True:
        try:
            return broker.coordinator.init(owner)
        except Concurrent:
            broker.settle()


# markers and the last stable offset


def test_the_last_stable_offset_lags_a_commit_that_returned(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"1")
    broker.coordinator.end("w", epoch, commit=True)
    assert (broker[A].stable, broker[A].end) == (0, 1)
    broker.settle()
    assert (broker[A].stable, broker[A].end) == (2, 2)


def test_markers_are_written_one_partition_at_a_time_in_any_order(broker: SimBroker) -> None:
    for first in (A, B):
        epoch = init(broker, "w")
        before = len(visible(broker, A)), len(visible(broker, B))
        put(broker, epoch, A, b"1")
        put(broker, epoch, B, b"2")
        broker.coordinator.end("w", epoch, commit=True)
        names = {p.what: p for p in broker.pending()}
        broker.do(names[f"commit marker of w in a-{first.partition}"])
        now = len(visible(broker, A)) - before[0], len(visible(broker, B)) - before[1]
        assert now == ((1, 0) if first == A else (0, 1))
        broker.settle()


def test_an_open_transaction_hides_what_others_committed_behind_it(broker: SimBroker) -> None:
    early, late = init(broker, "early"), init(broker, "late")
    put(broker, early, A, b"open", "early")
    put(broker, late, A, b"behind", "late")
    broker.coordinator.end("late", late, commit=True)
    broker.settle()
    assert visible(broker, A) == []
    broker.coordinator.end("early", early, commit=False)
    broker.settle()
    assert visible(broker, A) == [b"behind"]


def test_an_aborted_range_is_seen_only_by_uncommitted_reads(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"no")
    broker.coordinator.end("w", epoch, commit=False)
    broker.settle()
    assert broker[A].committed(0, 2) == ([], 2)
    assert [e.value for e in broker[A].uncommitted(0, 2)[0]] == [b"no"]


def test_a_new_transaction_waits_for_the_markers_of_the_last(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"1")
    broker.coordinator.end("w", epoch, commit=True)
    with pytest.raises(Concurrent):
        put(broker, epoch, A, b"2")
    broker.settle()
    put(broker, epoch, A, b"2")


# fencing


def test_a_new_producer_of_an_id_fences_the_old_one(broker: SimBroker) -> None:
    old = init(broker, "w")
    put(broker, old, A, b"old")
    new = init(broker, "w")
    for request in (
        lambda: put(broker, old, A, b"more"),
        lambda: broker.coordinator.end("w", old, commit=True),
        lambda: broker.txn_offset_commit("w", old, NOBODY, {A: 1}),
    ):
        with pytest.raises(Fenced):
            request()
    put(broker, new, A, b"new")
    broker.coordinator.end("w", new, commit=True)
    broker.settle()
    assert visible(broker, A) == [b"new"]


def test_init_aborts_an_open_transaction_and_returns_after_its_markers(broker: SimBroker) -> None:
    put(broker, init(broker, "w"), A, b"open")
    with pytest.raises(Concurrent):
        broker.coordinator.init("w")
    assert broker[A].stable == 0
    with pytest.raises(Concurrent):
        broker.coordinator.init("w")
    broker.settle()
    broker.coordinator.init("w")
    assert (broker[A].stable, visible(broker, A)) == (2, [])


def test_init_of_a_decided_commit_does_not_undo_it(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"committed")
    broker.coordinator.end("w", epoch, commit=True)
    with pytest.raises(Concurrent):
        broker.coordinator.init("w")
    broker.settle()
    assert init(broker, "w") == epoch + 1
    assert visible(broker, A) == [b"committed"]


def test_a_fenced_worker_unfences_itself_with_a_new_producer(broker: SimBroker) -> None:
    old = init(broker, "w")
    init(broker, "w")  # a successor's fence
    with pytest.raises(Fenced):
        put(broker, old, A, b"1")
    put(broker, init(broker, "w"), A, b"1")


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"slow")
    broker.coordinator.time_out("w")
    broker.settle()
    assert broker[A].stable == broker[A].end
    with pytest.raises(Fenced):
        broker.coordinator.end("w", epoch, commit=True)


def test_a_time_out_does_nothing_to_a_decided_transaction(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"1")
    broker.coordinator.end("w", epoch, commit=True)
    broker.coordinator.time_out("w")
    broker.settle()
    assert visible(broker, A) == [b"1"]


# an EndTxn under way


def delayed_commit(broker: SimBroker, epoch: int) -> Pending:
    late = Pending("EndTxn", lambda: broker.coordinator.end("w", epoch, commit=True))
    broker.under_way.append(late)
    return late


def test_a_delayed_end_commits_a_later_transaction_of_the_same_epoch(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"first")
    late = delayed_commit(broker, epoch)
    broker.coordinator.end("w", epoch, commit=False)
    while todo := [p for p in broker.pending() if p is not late]:
        broker.do(todo[0])
    put(broker, epoch, A, b"second, not yet ended")
    broker.settle()
    assert visible(broker, A) == [b"second, not yet ended"]


def test_a_delayed_end_does_nothing_once_the_epoch_has_moved(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"first")
    late = delayed_commit(broker, epoch)
    with pytest.raises(Concurrent):
        broker.coordinator.init("w")
    broker.do(late)
    broker.settle()
    assert visible(broker, A) == []
    assert broker.under_way == []


def test_a_delayed_request_that_meets_missing_markers_tries_again(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"first")
    late = delayed_commit(broker, epoch)
    broker.coordinator.end("w", epoch, commit=True)
    broker.do(late)
    assert len(broker.under_way) == 1
    broker.settle()
    assert broker.coordinator.phase("w") is Phase.EMPTY


# offsets in a transaction, and the group


def joined(broker: SimBroker, *instances: str) -> list[Member]:
    members = [Member(broker.group, i, broker.group.join(i)) for i in instances]
    for m in members:
        m.heartbeat()
    return members


def test_offsets_become_committed_with_their_marker(broker: SimBroker) -> None:
    (m,) = joined(broker, "w")
    epoch = init(broker, "w")
    broker.txn_offset_commit("w", epoch, m.joined, {A: 7})
    broker.coordinator.end("w", epoch, commit=True)
    assert broker.committed_offsets == {}
    assert broker.coordinator.unmarked() == [("w", OFFSETS)]
    broker.settle()
    assert broker.committed_offsets == {A: 7}


def test_offsets_of_an_aborted_transaction_are_dropped(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    broker.txn_offset_commit("w", epoch, NOBODY, {A: 7})
    broker.coordinator.end("w", epoch, commit=False)
    broker.settle()
    assert broker.committed_offsets == {}


def test_offsets_are_checked_when_they_are_sent_and_not_when_the_transaction_ends(broker: SimBroker) -> None:
    (m,) = joined(broker, "w")
    epoch = init(broker, "w")
    put(broker, epoch, A, b"accepted before the pause")
    broker.txn_offset_commit("w", epoch, m.joined, {A: 1})
    broker.group.join("successor")
    broker.group.expire("w")
    broker.coordinator.end("w", epoch, commit=True)
    broker.settle()
    assert visible(broker, A) == [b"accepted before the pause"]


def test_the_group_refuses_offsets_of_a_stale_member(broker: SimBroker) -> None:
    (m,) = joined(broker, "w")
    epoch = init(broker, "w")
    broker.group.join("other")
    with pytest.raises(IllegalGeneration):
        broker.txn_offset_commit("w", epoch, m.joined, {A: 1})
    m.heartbeat()
    broker.txn_offset_commit("w", epoch, m.joined, {A: 1})
    broker.group.expire("w")
    with pytest.raises(UnknownMember):
        broker.txn_offset_commit("w", epoch, m.joined, {A: 1})


def test_the_group_refuses_offsets_of_a_fenced_instance(broker: SimBroker) -> None:
    (m,) = joined(broker, "w")
    epoch = init(broker, "w")
    broker.group.join("w")
    with pytest.raises(InstanceFenced):
        broker.txn_offset_commit("w", epoch, m.joined, {A: 1})


def test_a_transaction_without_offsets_is_never_checked_against_the_group(broker: SimBroker) -> None:
    joined(broker, "w")
    epoch = init(broker, "w")
    broker.group.expire("w")
    put(broker, epoch, A, b"unchecked")
    broker.coordinator.end("w", epoch, commit=True)
    broker.settle()
    assert visible(broker, A) == [b"unchecked"]


def test_offsets_of_a_client_without_membership_are_accepted(broker: SimBroker) -> None:
    joined(broker, "w")
    broker.txn_offset_commit("x", init(broker, "x"), NOBODY, {A: 1})


# who owns what


def test_a_static_member_that_returns_keeps_its_partitions_and_the_generation(broker: SimBroker) -> None:
    (m,) = joined(broker, "w")
    assert m.poll() == Event("assigned", (0, 1))
    generation = broker.group.generation
    (again,) = joined(broker, "w")
    assert (again.poll(), broker.group.generation) == (Event("assigned", (0, 1)), generation)
    m.heartbeat()
    assert m.poll() == Event("fenced", (0, 1))


def test_a_partition_is_not_handed_over_before_its_owner_lets_go(broker: SimBroker) -> None:
    a, b = joined(broker, "a", "b")
    a.poll()
    broker.group.move(1, "b")
    for m in (a, b):
        m.heartbeat()
    assert (b.poll(), broker.group.owner[1]) == (None, "a")
    event = a.poll()
    assert event == Event("revoked", (1,))
    assert event is not None
    a.answered(event)
    b.heartbeat()
    assert (b.poll(), broker.group.owner) == (Event("assigned", (1,)), {0: "a", 1: "b"})


def test_while_it_lets_go_the_owner_is_of_the_current_generation(broker: SimBroker) -> None:
    a, _ = joined(broker, "a", "b")
    a.heartbeat()
    a.poll()
    broker.group.move(1, "b")
    a.heartbeat()
    a.poll()
    broker.group.validate(a.joined)


def test_a_partition_asked_for_before_its_owner_heard_of_it_is_let_go_unseen(broker: SimBroker) -> None:
    a = Member(broker.group, "a", broker.group.join("a"))
    (b,) = joined(broker, "b")
    broker.group.move(1, "b")
    a.heartbeat()
    b.heartbeat()
    assert (a.poll(), b.poll()) == (Event("assigned", (0,)), Event("assigned", (1,)))


def test_an_expired_session_gives_the_partitions_away_at_once(broker: SimBroker) -> None:
    a, b = joined(broker, "a", "b")
    a.poll()
    broker.group.expire("a")
    b.heartbeat()
    assert b.poll() == Event("assigned", (0, 1))
    a.heartbeat()
    assert a.poll() == Event("lost", (0, 1))


def test_a_member_that_lost_its_partitions_joins_again_only_when_it_has_answered(broker: SimBroker) -> None:
    a, _ = joined(broker, "a", "b")
    a.heartbeat()
    a.poll()
    broker.group.expire("a")
    a.heartbeat()
    event = a.poll()
    a.heartbeat()
    with pytest.raises(UnknownMember):
        broker.group.validate(a.joined)
    assert event is not None
    a.answered(event)
    broker.group.validate(a.joined)


# compaction and retention


def commit(broker: SimBroker, key: bytes, value: bytes | None) -> None:
    epoch = init(broker, "w")
    broker.produce("w", epoch, A, [Sent(key, value, None, [])])
    broker.coordinator.end("w", epoch, commit=True)
    broker.settle()


def test_compaction_keeps_the_last_record_of_each_key_where_it_was(broker: SimBroker) -> None:
    for key, value in ((b"x", b"1"), (b"y", b"1"), (b"x", b"2")):
        commit(broker, key, value)
    end = broker[A].end
    broker[A].compact(broker.now, 100)
    found, position = broker[A].committed(0, end)
    assert ([(e.offset, e.key, e.value) for e in found], position) == ([(2, b"y", b"1"), (4, b"x", b"2")], end)


def test_a_tombstone_goes_after_its_time_and_a_late_reader_misses_the_deletion(broker: SimBroker) -> None:
    commit(broker, b"x", b"1")
    commit(broker, b"x", None)
    broker[A].compact(broker.now, 100)
    assert visible(broker, A) == [None]
    broker[A].compact(broker.now + 99, 100)
    assert visible(broker, A) == [None]
    broker[A].compact(broker.now + 100, 100)
    assert visible(broker, A) == []


def test_compaction_stops_at_an_open_transaction(broker: SimBroker) -> None:
    put(broker, init(broker, "open"), A, b"open", "open")
    commit(broker, b"x", b"1")
    commit(broker, b"x", b"2")
    broker[A].compact(broker.now, 0)
    assert len(broker[A].uncommitted(0, broker[A].end)[0]) == 3


def test_compaction_drops_aborted_records(broker: SimBroker) -> None:
    epoch = init(broker, "w")
    put(broker, epoch, A, b"no")
    broker.coordinator.end("w", epoch, commit=False)
    broker.settle()
    broker[A].compact(broker.now, 0)
    assert broker[A].uncommitted(0, broker[A].end) == ([], 2)


def test_deleted_records_are_out_of_range(broker: SimBroker) -> None:
    commit(broker, b"x", b"1")
    commit(broker, b"x", b"2")
    broker[A].delete(2)
    assert (broker[A].start, visible(broker, A)) == (2, [b"2"])
    with pytest.raises(OutOfRange):
        broker[A].committed(0, 4)
