"""Who owns which task: a static member of the app's group, on the steps topic only.

The member fetches nothing. If partition t of the steps topic is assigned to it, it owns task t; data is read elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_END, Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact, connected
from falkirk.connectors.kafka.client.errors import translate
from falkirk.errors import ClusterError, IdentityError

JOINING = 20.0
"""Seconds that a leaving member waits at most for the answer to its join. The others hear of it by their next heartbeat, a
second later; on hosts that are very busy, much later."""

LEAVING = 10.0
"""Seconds that a leaving member waits at most until it has given up its tasks, and asked to leave."""

FENCES, FENCE_WINDOW_S = 6, 60.0
"""A member that was fenced this often within this many seconds has a rival: another process that joins again, too, within
two seconds or so. A broker that is restarted again and again fences it once or twice each time, at most."""

Handler = Callable[[Sequence[int]], None]
"""Gets partitions of the steps topic."""


class Membership:
    """One worker's place in the group. All handlers run inside `poll`, in the thread that calls it."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        group: str,
        instance: str,
        topic: str,
        session_timeout_ms: int,
        on_assigned: Handler,
        on_revoked: Handler,
        on_lost: Handler,
    ) -> None:
        self.group, self.instance, self._topic = group, instance, topic
        self._settings = cluster.member(group, instance, session_timeout_ms)
        self._consumer = client(Consumer, self._settings)
        self._contact = Contact(session_timeout_ms / 1000)  # before its session ends it would not lose its tasks either
        self._fenced_at: list[float] = []
        self._assignment: set[int] = set()
        """As far as the handlers were told; a client that was fenced says that it has none before it calls one."""
        self._metadata: object = None
        self._refresh()
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    def join(self) -> None:
        """Ask for tasks."""
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self) -> None:
        """Handle the group's events. Raises IdentityError if another process runs under this instance id, and ClusterError
        if this member cannot continue in this group."""
        while (message := self._consumer.poll(0)) is not None:
            if (error := message.error()) is None:
                continue
            # A fence is reported as fatal, with its own words inside.
            if error.code() == KafkaError.FENCED_INSTANCE_ID or "fenced" in error.str():
                self._fenced()
                return
            if known := translate(error, f"consumer group {self.group}"):
                raise known
            if error.fatal():
                raise ClusterError(f"the group is lost: {error.str()}", where=f"consumer group {self.group}")
            logger.warning("group: %s", error)
        silence = self._contact.silence
        if self._contact.lost(self._consumer, self._topic):
            logger.info("group %s: not connected for %.0f s; joining with a new client", self.group, silence)
            self._replace()

    def _fenced(self) -> None:
        """Somebody joined as this instance after this client did. Join again, unless it happens repeatedly.

        It may have been this member itself: a broker that was away answers a join that was sent twice, in any order, and one
        that was killed may return with the group's state from before the last join. A rival joins again, too.
        """
        now = time.monotonic()
        self._fenced_at = [at for at in self._fenced_at if now - at < FENCE_WINDOW_S] + [now]
        if len(self._fenced_at) == FENCES:
            raise IdentityError(
                f"another process runs under this worker's identity, {self.instance}",
                where=f"consumer group {self.group}",
                hint="was a state directory copied? Start each worker with one of its own",
            )
        logger.warning("group %s: %s has joined in another process, or twice; joining again", self.group, self.instance)
        self._replace()

    def metadata(self) -> object:
        """The group's generation and this member's place in it, for the transaction. Any thread may ask.

        As of the last rebalance: each ends in a handler here. Another thread cannot ask the client itself while a handler
        runs, and a handler may wait for that thread's transaction. If the generation has become stale by then, the broker
        refuses it, and the transaction is tried again.
        """
        return self._metadata

    def _refresh(self) -> None:
        self._metadata = self._consumer.consumer_group_metadata()

    def leave(self) -> None:
        """Leave for good: a static member that only closes keeps its tasks idle until its session ends."""
        # So does a member whose join is under way: librdkafka does not leave a group that has not answered it yet, but when
        # the group answers, it counts the member in.
        deadline = time.monotonic() + JOINING
        while not self._consumer.memberid() and time.monotonic() < deadline and connected(self._consumer, self._topic):
            self._poll_for(0.5, until=self._consumer.memberid)
        self._consumer.unsubscribe()
        # librdkafka asks to leave when all is given up, and then forgets its member id. A static member that is closed before
        # does not ask: it is to come back.
        self._poll_for(LEAVING, until=lambda: not self._consumer.assignment() and not self._consumer.memberid())
        self._consumer.close()

    def _poll_for(self, seconds: float, until: Callable[[], object]) -> None:
        """Handle the group's events for so long, or until something is the case."""
        deadline = time.monotonic() + seconds
        self._consumer.poll(0.01)
        while not until() and time.monotonic() < deadline:
            self._consumer.poll(0.01)

    def rejoin(self) -> None:
        """Leave, and join as a new member: tasks are divided again.

        With a new client. If the old one subscribes again before it has left, it does not leave.
        """
        self.leave()
        self._consumer = client(Consumer, self._settings)
        self.join()

    def _replace(self) -> None:
        """Give up the tasks, as when the session ends, and join as the same member with a new client."""
        handlers = self._on_assigned, self._on_revoked, self._on_lost
        if self._assignment:
            self._on_lost(sorted(self._assignment))
            self._assignment.clear()
        self.close()
        self._on_assigned, self._on_revoked, self._on_lost = handlers
        self._consumer = client(Consumer, self._settings)
        # It has not connected yet. A third client beside its join would make the group see this member twice.
        self._contact.heard()
        self.join()

    def close(self) -> None:
        """End like a process that dies: the group notices when the session ends.

        First, pending events of the group are handled. If the client got an assignment while it is closed, librdkafka would
        end its group membership beside the handler, and might never answer the handler's calls.
        """
        self._on_assigned = self._on_revoked = self._on_lost = lambda partitions: None
        with suppress(RuntimeError):  # closed already, by `leave`
            self._consumer.poll(0)
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._refresh()
        # An explicit position: the default one would wait for pending transactional commits of the old owner, and a trimmed
        # one would give errors. Paused at once: the steps are read elsewhere.
        for p in partitions:
            p.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._assignment.update(p.partition for p in partitions)
        self._on_assigned([p.partition for p in partitions])

    def _revoked(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._refresh()
        self._assignment.difference_update(p.partition for p in partitions)
        self._on_revoked([p.partition for p in partitions])
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._refresh()
        self._assignment.difference_update(p.partition for p in partitions)
        self._on_lost([p.partition for p in partitions])
        consumer.incremental_unassign(partitions)
