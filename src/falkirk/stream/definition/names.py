"""Names of an app's internal topics, and what a database may be called.

They have a file of their own, because a supervisor needs them before it imports flows.
"""

from __future__ import annotations

import re

from falkirk.errors import DefinitionError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

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


def check_name(name: str, what: str, line: str) -> None:
    """Raises DefinitionError unless the name can be part of a topic's name."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is not a valid name for a {what}",
            where=line,
            hint="topics are named after it: use up to 100 letters, digits, dots, dashes and underscores",
        )
