"""Which of its inputs a running task reads.

taken over ──▶ HELD      none: its worker's broadcast tables are not read as far as the task has seen them
                 └──▶ MOVING     none: state of an earlier version of the flow is moved, or rebuilt from earlier input
                        └──▶ LOADING    its own tables, to their end: a lookup in a table finds what was there
                               └──▶ OPEN       all of them

A table's end behind an exchange lies behind all that is on its way there when the worker starts (`upstream`).

A task goes through those that apply to it. A rewind leads back to MOVING if the committed state is not moved yet; tables that
were read to their end are not waited for again.
"""

from __future__ import annotations

from enum import IntEnum


class Intake(IntEnum):
    """As drawn above, in this order."""

    HELD = 0
    MOVING = 1
    LOADING = 2
    OPEN = 3
