"""How the command line words things."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """So many of them.

    >>> counted(1, "worker"), counted(2_000, "record"), counted(0, "task")
    ('1 worker', '2,000 records', '0 tasks')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
