"""How many files and connections this process may open."""

from __future__ import annotations

import resource
from contextlib import suppress

SOFT_LIMIT = 65_536
"""Open files that a process asks for. With more, some programs that it may start are slow: they close every number."""


def raise_file_limit() -> int:
    """Let this process open as many files as it may, within reason; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, SOFT_LIMIT)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return SOFT_LIMIT if soft == resource.RLIM_INFINITY else soft
    for limit in (wanted, 10_240):  # macOS takes no more than 10,240, even if its limit is higher
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return soft
