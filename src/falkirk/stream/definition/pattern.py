"""The topics of a source: one topic, a list of topics, or a pattern for their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from falkirk.blame import user_line
from falkirk.checkpoint.ids import address, cluster_of, name_of
from falkirk.errors import DefinitionError


@dataclass(frozen=True)
class Pattern:
    """Topics by name, for `flow.source(topic=…)`. The regular expression must match the full name.

    Three kinds of topics never match: Kafka's internal topics (their names begin with two underscores), topics with the
    run's prefix, and topics of other clusters. Raises DefinitionError for an invalid regular expression.

    >>> orders = Pattern("orders-[a-z]+")
    >>> orders.among(["orders-eu", "orders-us", "orders-2", "old-orders-eu", "falkirk.stats.steps"], "falkirk")
    ['orders-eu', 'orders-us']
    >>> Pattern("orders-(")
    Traceback (most recent call last):
    falkirk.errors.DefinitionError: 'orders-(' is not a regular expression: missing ), unterminated subpattern at position 7
      ...
    """

    text: str
    cluster: str = field(default="", init=False)
    """The source's."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.text)
        except (re.error, TypeError) as error:
            raise DefinitionError(
                f"{self.text!r} is not a regular expression: {error}",
                where=user_line(),
                hint='write what Python\'s re module reads: fk.Pattern("orders-.*")',
            ) from error

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self.text)

    def within(self, cluster: str) -> Pattern:
        """The same pattern for another cluster.

        >>> str(Pattern("orders-.*").within("sales")), Pattern("a.*").within("sales").matches("sales:ab")
        ('sales:/orders-.*/', True)
        """
        there = Pattern(self.text)
        object.__setattr__(there, "cluster", cluster)
        return there

    def matches(self, topic: str) -> bool:
        """Whether a topic matches. The name of a topic in another cluster is CLUSTER:NAME.

        >>> Pattern("orders-.*").matches("orders-eu"), Pattern("orders-.*").matches("sales:orders-eu")
        (True, False)
        """
        name = name_of(topic)
        found = self._expression.fullmatch(name) is not None and not name.startswith("__")
        return found and cluster_of(topic) == self.cluster

    def among(self, topics: Iterable[str], prefix: str) -> list[str]:
        """The matching topics, ordered by name. `prefix` is the run's prefix.

        >>> Pattern("o.*").among(["orders", "old", "new"], "falkirk")
        ['old', 'orders']
        """
        own = f"{prefix}."
        return sorted(topic for topic in set(topics) if self.matches(topic) and not name_of(topic).startswith(own))

    def __str__(self) -> str:
        # No topic has a name like this, so nobody can mistake an unresolved pattern for a topic.
        return address(self.cluster, f"/{self.text}/")


_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def check_topic(name: str, where: str) -> None:
    """Raises DefinitionError for a name that Kafka gives no topic."""
    if not _TOPIC.fullmatch(name):
        raise DefinitionError(
            f"a topic cannot be named {name!r}",
            where=where,
            hint='use letters, digits, dots, dashes and underscores; a source may read several: fk.Pattern("orders-.*")',
        )


TopicLike: TypeAlias = str | Sequence[str] | Pattern
Topics: TypeAlias = str | tuple[str, ...] | Pattern


def checked_topics(given: Any, where: str) -> Topics:
    """Checks a user's `topic`. Raises DefinitionError."""
    if isinstance(given, str | Pattern):
        return given
    if isinstance(given, Sequence) and given and all(isinstance(name, str) for name in given):
        if twice := next((name for name in given if list(given).count(name) > 1), None):
            raise DefinitionError(f"topic {twice!r} is listed twice", where=where, hint="list it once")
        return tuple(sorted(given))
    raise DefinitionError(
        f"topic={given!r} is not a topic",
        where=where,
        hint='use "orders", ["orders-eu", "orders-us"] or fk.Pattern("orders-.*")',
    )


def reads(topics: Topics, name: str) -> bool:
    """Whether they include a topic of this name."""
    return (
        topics.matches(name)
        if isinstance(topics, Pattern)
        else name == topics or (isinstance(topics, tuple) and name in topics)
    )


def in_words(topics: Topics) -> str:
    """The topics as readable text. A single topic is its name.

    >>> in_words("a"), in_words(("a", "b")), in_words(Pattern("a.*"))
    ('a', 'a, b', '/a.*/')
    """
    return ", ".join(topics) if isinstance(topics, tuple) else str(topics)
