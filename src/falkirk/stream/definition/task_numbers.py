"""How many tasks the stages behind an exchange have, if the user chooses it."""

from __future__ import annotations

from typing import Any

from falkirk.errors import DefinitionError
from falkirk.state.shards import SHARDS


def checked_tasks(tasks: Any, where: str) -> int | None:
    """Checks a user's `tasks`. Raises DefinitionError.

    >>> checked_tasks(8, "flow 'stats'"), checked_tasks(None, "flow 'stats'")
    (8, None)
    """
    if tasks is None or (isinstance(tasks, int) and not isinstance(tasks, bool) and 1 <= tasks <= SHARDS):
        return tasks
    raise DefinitionError(
        f"tasks={tasks!r} is not a number of tasks that a stage can have",
        where=where,
        hint=f"give a whole number from 1 to {SHARDS:,}: state is divided among the tasks of a stage in {SHARDS:,} shards",
    )
