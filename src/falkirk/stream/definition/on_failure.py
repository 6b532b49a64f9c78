"""What stops when a part of a flow fails."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from falkirk.errors import DefinitionError

OnFailure: TypeAlias = Literal["app", "part"]
"""`"app"`: the whole app stops. `"part"`: only the stage, or the batch part, that has failed."""


def checked_on_failure(on_failure: Any, where: str) -> OnFailure:
    """Checks a user's `on_failure`. Raises DefinitionError.

    >>> checked_on_failure("part", "flow 'stats'")
    'part'
    """
    if on_failure == "app" or on_failure == "part":
        chosen: OnFailure = on_failure
        return chosen
    raise DefinitionError(
        f"on_failure={on_failure!r} is neither 'app' nor 'part'",
        where=where,
        hint="on_failure='app' stops the app when a part of it fails; on_failure='part' stops only that part",
    )
