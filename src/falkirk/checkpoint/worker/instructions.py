"""What a worker's core tells its driver to do.

Name       name this worker in tasks             ┐
Admit      ask whether these names are the last  │ one of these at a time, as a worker has one producer
Commit     commit steps                          │ (`transactions.run`, `WorkerCore.ended`)
Release    tell successors that nothing is open  ┘
Recover    fence the owners before, and roll each task's store forward, in parallel with all else
           (`takeover.fence`, `takeover.recover`, `WorkerCore.recovered`)
Start      read and step a task; its first step is staged before
Rewind     read again from its last committed step
Leave      read and step tasks no more, and make a last version of each
Drop       read and step a task no more, and close its store (`takeover.abandon`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from falkirk.checkpoint.tasks import ClosedStep, Owned


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """Name this worker in these tasks. Their stores may be opened meanwhile."""

    tasks: Sequence[Owned]
    mine: Sequence[Owned]
    """Every other ownership of this worker, for the case that its producer is renewed."""


@dataclass(frozen=True, slots=True, eq=False)
class Admit:
    """Let these tasks run, as far as the last name in each is this worker's."""

    tasks: Sequence[Owned]


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Commit these steps."""

    steps: Sequence[ClosedStep]
    mine: Sequence[Owned]


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Tell the successors of these tasks that nothing of theirs is open."""

    tasks: Sequence[Owned]
    mine: Sequence[Owned]


@dataclass(frozen=True, slots=True, eq=False)
class Recover:
    """Recover the tasks that were named together. One whose name was not committed, or that was revoked, only ends."""

    tasks: Sequence[Owned]


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Make a last version of these tasks. Nothing more of theirs is read."""

    tasks: Sequence[Owned]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The task runs."""

    owned: Owned


@dataclass(frozen=True, slots=True, eq=False)
class Rewind:
    """The task's last step was aborted."""

    owned: Owned


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """This worker has nothing more to do with the task."""

    owned: Owned


Transaction: TypeAlias = Name | Admit | Commit | Release
Instruction: TypeAlias = Transaction | Recover | Leave | Start | Rewind | Drop
