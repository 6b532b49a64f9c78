"""How the command line words things."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, what: str) -> str:
    """So many of them.

    >>> counted(1, "worker"), counted(2_000, "record"), counted(0, "task")
    ('1 worker', '2,000 records', '0 tasks')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Sequence[object], most: int = 5) -> str:
    """The first of them, and how many there are beside.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d"], most=2), listed([])
    ('a, b', 'a, b and 2 more', '')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
