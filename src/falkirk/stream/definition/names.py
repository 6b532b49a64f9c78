"""Names of an app's internal topics, and what a database may be called.

They have a file of their own, because a supervisor needs them before it imports flows.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from falkirk.errors import DefinitionError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LONGEST = 180
"""Characters of an operator's id. Kafka allows 249 for a topic, which begins with the prefix and the app's name."""
_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST}}}")

DATABASE = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")
"""The valid names of databases."""

PREFIX = "falkirk"
"""The default prefix of internal topics."""


def own_topics(prefix: str, app: str) -> str:
    """The prefix of all internal topics of the app."""
    return f"{prefix}.{app}."


def steps_topic(prefix: str, app: str) -> str:
    """The steps topic. It has one partition for each task of the app."""
    return f"{prefix}.{app}.steps"


def control_topic(prefix: str, app: str) -> str:
    """The topic of the layout and the workers' reports."""
    return f"{prefix}.{app}.control"


def changelog_topic(prefix: str, app: str, stage: str) -> str:
    """The changelog topic of an eager stage."""
    return log_topic(prefix, app, "changelog", stage)


def log_topic(prefix: str, app: str, kind: str, stage: str) -> str:
    """A topic that a stage's regime needs."""
    return f"{prefix}.{app}.{kind}.{stage}"


def epochs_topic(prefix: str, app: str, stage: str) -> str:
    """The topic with the epochs of a batch part, and their progress."""
    return f"{prefix}.{app}.epochs.{stage}"


BACKFILL = "backfill"
"""The name of the backfill among the parts with epochs."""


def backfill_topic(prefix: str, app: str) -> str:
    """The topic with the records of the app's backfill, if it has one."""
    return epochs_topic(prefix, app, BACKFILL)


def drivers(app: str) -> str:
    """The consumer group of an app's drivers."""
    return f"{app}.drivers"


def shadow_app(app: str) -> str:
    """The name of the shadow app that rebuilds operators of this app beside it. This app's prefix is in its topics too."""
    return f"{app}.rebuild"


def replays_topic(prefix: str, app: str) -> str:
    """The topic that records replayed dead letters."""
    return f"{prefix}.{app}.replays"


def default_id(*parts: str) -> str:
    """The id of an operator that was given none. Its parts may be names of columns and functions. If a topic cannot have it,
    a digest keeps it apart from others that look the same.

    >>> default_id("by", "user", "day"), default_id("<lambda>", "by", "user")
    ('by.user.day', 'lambda.by.user')
    >>> default_id("by", "user id"), default_id("by", "user_id")
    ('by.user_id-bca35fe5', 'by.user_id')
    """
    name = ".".join(parts).replace("<lambda>", "lambda")
    if _ID.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub('[^A-Za-z0-9._-]+', '_', name)[: _LONGEST - 9]}-{digest}"


def check_id(given: Any, kind: str, line: str) -> None:
    """Raises DefinitionError unless topics can be named after an operator with this id."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise DefinitionError(
            f"id={given!r} is not a valid id",
            where=f"{kind} ({line})",
            hint=f"topics are named after it: use up to {_LONGEST} letters, digits, dots, dashes and underscores",
        )


def is_name(name: str) -> bool:
    """Whether topics and a folder can be named after an app of this name.

    >>> is_name("auction-stats"), is_name(""), is_name(".."), is_name("a/b")
    (True, False, False, False)
    """
    return bool(_NAME.fullmatch(name) and name.strip("."))


def check_name(name: Any, what: str, line: str) -> None:
    """Raises DefinitionError unless the name can be part of a topic's name."""
    if not isinstance(name, str) or not is_name(name):
        raise DefinitionError(
            f"{name!r} is not a valid name for a {what}",
            where=line,
            hint="topics are named after it: use up to 100 letters, digits, dots, dashes and underscores, not only dots",
        )
