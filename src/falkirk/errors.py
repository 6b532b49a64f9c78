"""The one exception tree of Falkirk.

Every error says what happened, where (operator, topic, partition, offset) and what to do about it. The command line
prints the text without a trace and exits with the class's `exit_code`.

    FalkirkError
    ├── DefinitionError      the flow is wrong: found while it is being built, before anything runs
    ├── ConfigError          a flag, setting or environment is wrong
    ├── ClusterError         the Kafka cluster cannot be used as asked: too old, topic missing, not authorised
    │   └── UnreachableError     no broker answers just now: what runs goes on trying
    ├── SourceError          an input is not what the flow claims: keys, partitions, retention, recreated topic
    ├── UserCodeError        a user's function raised, or returned the wrong shape
    ├── DivergenceError      a replayed step gave another output than the one it published
    ├── StateError           a store or a checkpoint cannot be used: other app, other format, unreadable, changed schema
    │   ├── OutgrownError        the app has gone on under a newer layout than this worker's
    │   └── DamagedError         a copied version lacks a part, or its bytes have changed: an older one may do
    ├── DiskError            the disk is full, or a file cannot be written
    │   └── AwayError            a store, bucket or database does not answer, or refuses: what runs waits, and asks again
    ├── IdentityError        another process runs under this worker's identity
    ├── ClockError           this host's clock is not the broker's
    └── CrashError           processes died again and again, of what is none of these
"""

from __future__ import annotations


class FalkirkError(Exception):
    """What happened, where, and what to do.

    >>> print(FalkirkError("topic 'bids' does not exist", where="source bids", hint="create it first"))
    topic 'bids' does not exist
      where: source bids
      to do: create it first
    """

    exit_code: int = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  to do: {self.hint}")
        return "\n".join(lines)


class DefinitionError(FalkirkError):
    """The flow is wrong: an unknown column, a wrong type, two operators with one id."""

    exit_code = 2


class ConfigError(FalkirkError):
    """A flag, a setting or the environment is wrong."""

    exit_code = 2


class ClusterError(FalkirkError):
    """The cluster is unreachable, refuses the client, is too old, or lacks a topic."""

    exit_code = 3


class UnreachableError(ClusterError):
    """No broker answers. At the start that is an error; a worker that runs waits until one does."""


class SourceError(FalkirkError):
    """An input is not as the flow declares it: keys, partitions, retention, a topic that was created again; or too many of
    its records do not decode (`stop_above=`).
    """

    exit_code = 4


class UserCodeError(FalkirkError):
    """A function of the flow raised an error or returned a value that does not fit, or did so too often (`stop_above=`); or
    a record is larger than its topic allows.
    """

    exit_code = 5


class DivergenceError(FalkirkError):
    """A step that was run again gave other output than it published."""

    exit_code = 6


class StateError(FalkirkError):
    """A store or a checkpoint cannot be used: it belongs to another app or format, its schema changed, or it is unreadable.
    It is never taken for an empty one.
    """

    exit_code = 7


class OutgrownError(StateError):
    """The app has gone on under a newer layout: another flow, or one more topic that a pattern matches."""


class DamagedError(StateError):
    """A copied version cannot be read: a part is missing, or its bytes have changed."""


class DiskError(FalkirkError):
    """The disk is full, or a file cannot be written."""

    exit_code = 8


class AwayError(DiskError):
    """The checkpoint store, or where a sink writes outside Kafka, does not answer, or refuses. To a command that is an error;
    a worker that runs asks again.
    """


class IdentityError(FalkirkError):
    """Another process runs under this worker's identity, and this one ends; or another replay of dead letters has begun."""

    exit_code = 9


class ClockError(FalkirkError):
    """This host's clock differs from the broker's by more than `--clock-bound`: it takes no tasks."""

    exit_code = 11


class CrashError(FalkirkError):
    """Workers, or a driver, died repeatedly, and not from one of these errors: see their traces."""

    exit_code = 70


def retold(kind: str, what: str, exit_code: int, *, where: str = "", hint: str = "") -> FalkirkError:
    """The error that another process has told of, by the name of its class.

    >>> retold("SourceError", "topic 'bids' is gone", 4, hint="restore it")
    SourceError("topic 'bids' is gone")
    >>> retold("UnknownError", "of a newer version", 99).exit_code
    99
    """
    todo: list[type[FalkirkError]] = [FalkirkError]
    while todo and todo[0].__name__ != kind:
        todo += todo.pop(0).__subclasses__()
    error = (todo[0] if todo else FalkirkError)(what, where=where, hint=hint)
    error.exit_code = exit_code
    return error
