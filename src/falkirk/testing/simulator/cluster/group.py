"""A consumer group of the classic protocol: static members, cooperative hand-over, one generation number.

The group owns the partitions of one topic. For every partition, its coordinator keeps the present and the next owner. If
these differ, the partition is being handed over: it stays with the first until that one has released it.

    join         a new instance: it is a member; a known one: its older process is fenced, nothing else changes
    move         p is to go from a to b: a learns it at its next heartbeat, releases p, and then b gets it
    expire       the session of a ends: its partitions go to others at once, no matter what a is doing
    each of these but the return of a known instance begins a generation; a member knows it from its next heartbeat on
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class UnknownMember(Exception):
    """The group does not know this member: its session has expired (UNKNOWN_MEMBER_ID)."""


class IllegalGeneration(Exception):
    """The member has not joined the present generation (ILLEGAL_GENERATION)."""


class InstanceFenced(Exception):
    """Another process has joined under this instance id (FENCED_INSTANCE_ID)."""


class Membership(NamedTuple):
    """What a request says about its sender. Generation −1, of a client without membership, is not checked."""

    instance: str
    member: int
    generation: int


NOBODY = Membership("", 0, -1)


class Event(NamedTuple):
    """What a member learns about its partitions."""

    kind: Literal["assigned", "revoked", "lost", "fenced"]
    partitions: tuple[int, ...]


@dataclass(slots=True)
class Group:
    """The group's coordinator.

    >>> g = Group(2); a = g.join("a"); g.owner
    {0: 'a', 1: 'a'}
    >>> b = g.join("b"); g.move(1, "b"); g.owner[1]
    'a'
    >>> g.let_go("a", [1]); g.owner[1]
    'b'
    """

    partitions: int
    generation: int = 0
    owner: dict[int, str] = field(default_factory=dict)
    to_be: dict[int, str] = field(default_factory=dict)
    changes: int = 0
    """The number of changes that a member may have to learn of."""
    _members: dict[str, int] = field(default_factory=dict)
    _joined: int = 0

    @property
    def members(self) -> list[str]:
        """Instances with a live session, in order."""
        return sorted(self._members)

    def has(self, member: Membership) -> bool:
        """Is this process a member, in any generation?"""
        return self._members.get(member.instance) == member.member

    def join(self, instance: str) -> Membership:
        """Become a member, or take the place of the older process with this instance id."""
        self._joined, self.changes = self._joined + 1, self.changes + 1
        known = instance in self._members
        self._members[instance] = self._joined
        if not known:
            self._rebalance()
        return Membership(instance, self._joined, self.generation)

    def move(self, partition: int, to: str) -> None:
        """The assignor's choice changes: the partition is to be handed over to a member."""
        if to in self._members and partition < self.partitions and self.owner.get(partition) != to:
            self.to_be[partition] = to
            self._rebalance()

    def let_go(self, instance: str, partitions: list[int]) -> None:
        """A member has released the requested partitions, and joins again: others get them."""
        gone = [p for p in partitions if self.owner.get(p) == instance]
        for p in gone:
            del self.owner[p]
        if gone:
            self._rebalance()

    def expire(self, instance: str) -> None:
        """A session ends, or a member leaves for good."""
        if self._members.pop(instance, None) is not None:
            self.owner = {p: o for p, o in self.owner.items() if o != instance}
            self.to_be = {p: o for p, o in self.to_be.items() if o != instance}
            self._rebalance()

    def _rebalance(self) -> None:
        """A new generation. Unowned partitions go to their next owner, or to the member with the fewest partitions."""
        self.generation, self.changes = self.generation + 1, self.changes + 1
        for p in range(self.partitions):
            if p not in self.owner and self._members:
                load = {m: list(self.owner.values()).count(m) for m in self.members}
                self.owner[p] = self.to_be.pop(p, "") or min(self.members, key=lambda m: (load[m], m))

    def validate(self, sender: Membership) -> None:
        """The check when offsets are committed. Raises UnknownMember, IllegalGeneration or InstanceFenced."""
        if sender == NOBODY:
            return
        member = self._members.get(sender.instance)
        if member is None:
            raise UnknownMember(sender.instance)
        if member != sender.member:
            raise InstanceFenced(sender.instance)
        if sender.generation != self.generation:
            raise IllegalGeneration(sender.instance)


@dataclass(slots=True)
class Member:
    """The client's side of a membership, in one process. Its background thread is `heartbeat`.

    The generation is new as soon as the heartbeat has learnt of it, before the application knows what it means. After a loss
    or a fence the client joins again only when the application has answered (`answered`).
    """

    group: Group
    instance: str
    joined: Membership
    assigned: set[int] = field(default_factory=set)
    """The partitions that the application was told it owns, and whose loss it has not answered."""
    events: list[Event] = field(default_factory=list)
    _out: bool = False
    _heard: int = -1

    def stale(self) -> bool:
        """May the next heartbeat bring news?"""
        return not self._out and self._heard != self.group.changes

    def heartbeat(self) -> None:
        """Learn of a new generation, of partitions requested or gained, or of the end of this membership."""
        if self._out:
            return
        self._heard = self.group.changes
        try:
            self.group.validate(self.joined)
        except InstanceFenced:
            self._out, self.events = True, [Event("fenced", tuple(sorted(self.assigned)))]
        except UnknownMember:
            self._out, self.events = True, [Event("lost", tuple(sorted(self.assigned)))]
        except IllegalGeneration:
            self.joined = self.joined._replace(generation=self.group.generation)
        if not self._out:
            self.events += self._news()
            self.group.let_go(self.instance, sorted(self._asked() - self.assigned - self._told("assigned")))

    def _asked(self) -> set[int]:
        return {p for p, o in self.group.owner.items() if o == self.instance and p in self.group.to_be}

    def _told(self, kind: str) -> set[int]:
        return {p for e in self.events if e.kind == kind for p in e.partitions}

    def _news(self) -> list[Event]:
        known = self.assigned | self._told("assigned")
        mine = {p for p, o in self.group.owner.items() if o == self.instance}
        revoked = (self._asked() & known) - self._told("revoked")
        gained = mine - self._asked() - known
        news: list[Event] = []
        if revoked:
            news.append(Event("revoked", tuple(sorted(revoked))))
        if gained:
            news.append(Event("assigned", tuple(sorted(gained))))
        return news

    def poll(self) -> Event | None:
        """The next event, which the application must answer."""
        if not self.events:
            return None
        event = self.events.pop(0)
        if event.kind == "assigned":
            self.assigned |= set(event.partitions)
        return event

    def answered(self, event: Event) -> None:
        """The application has handled the event: partitions are released, or the client joins again."""
        if event.kind == "revoked":
            self.assigned -= set(event.partitions)
            if not self._out:
                self.group.let_go(self.instance, list(event.partitions))
        elif event.kind in ("lost", "fenced"):
            self.assigned = set()
            self.joined, self._out = self.group.join(self.instance), False
