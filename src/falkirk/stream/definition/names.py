"""What an app's own topics are called.

A file for itself: a supervisor knows names before it imports what knows flows.
"""

from __future__ import annotations

import re

from falkirk.errors import DefinitionError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

PREFIX = "falkirk"
"""What the names of an app's own topics begin with, unless a run says otherwise."""


def own_topics(prefix: str, app: str) -> str:
    """What the names of all of the app's own topics begin with."""
    return f"{prefix}.{app}."


def steps_topic(prefix: str, app: str) -> str:
    """The topic whose partitions are the app's tasks."""
    return f"{prefix}.{app}.steps"


def control_topic(prefix: str, app: str) -> str:
    """The topic that holds the layout and what workers report."""
    return f"{prefix}.{app}.control"


def changelog_topic(prefix: str, app: str, stage: str) -> str:
    """Where an eager stage logs its state changes."""
    return f"{prefix}.{app}.changelog.{stage}"


def epochs_topic(prefix: str, app: str, stage: str) -> str:
    """Where the epochs of a batch part are recorded, and how far their results are published."""
    return f"{prefix}.{app}.epochs.{stage}"


BACKFILL = "backfill"
"""What a backfill is called among the parts that have epochs."""


def backfill_topic(prefix: str, app: str) -> str:
    """Where the app's backfill is recorded, if it has one."""
    return epochs_topic(prefix, app, BACKFILL)


def drivers(app: str) -> str:
    """The consumer group of an app's drivers."""
    return f"{app}.drivers"


def shadow_app(app: str) -> str:
    """What an app is called that rebuilds operators of this one beside it: its topics are among those of this one."""
    return f"{app}.rebuild"


def replays_topic(prefix: str, app: str) -> str:
    """Which dead letters were replayed."""
    return f"{prefix}.{app}.replays"


def check_name(name: str, what: str, line: str) -> None:
    """Raises DefinitionError unless the name can be part of a topic's name."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is no name for a {what}",
            where=line,
            hint="topics are named after it: use up to 100 letters, digits, dots, dashes and underscores",
        )
