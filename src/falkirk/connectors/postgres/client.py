"""Connections to PostgreSQL, and its errors in words.

Time-outs, which an address may set otherwise:

    connect            5 s for each host
    a statement       30 s; for a lock, 10 s
    no answer         30 s until the connection counts as broken
    a worker asleep   30 s until the server ends its transaction, so that its locks hold up nobody

They are set in each transaction and not for the connection, because a pooler gives the next transaction another one.

An address holds a password. Nothing that is logged or raised has more of it than user, host, port and database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from falkirk.errors import AwayError, ConfigError

if TYPE_CHECKING:
    import psycopg

SAFE = "nothing is lost: the rows wait in Kafka"
CONNECT = {
    "connect_timeout": "5",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "client_encoding": "utf8",
}
LIMITS = {"statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s"}
"""Of a transaction."""


class Database:
    """One database, with a connection that is made when it is needed."""

    def __init__(self, name: str, url: str, app: str) -> None:
        """`name` is what flows call it. Raises ConfigError if the address cannot be one, or psycopg is not installed."""
        self._psycopg = driver()
        self.name = name
        given = self._parsed(url)
        self._parameters = {**CONNECT, "application_name": f"falkirk {app}", **given}
        self._own_limits = limits_in(str(given.get("options") or ""))
        host = given.get("host") or given.get("hostaddr") or "localhost"
        user = f"{given['user']}@" if given.get("user") else ""
        self.where = f"database {name!r} at {user}{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
        self._connection: psycopg.Connection[Any] | None = None
        self._opened: psycopg.Cursor[Any] | None = None

    def _parsed(self, url: str) -> dict[str, Any]:
        try:
            given: dict[str, Any] = dict(self._psycopg.conninfo.conninfo_to_dict(url))
        except self._psycopg.Error:
            given = {"host": "@"}
        # The end of a password that is not quoted is taken for a part of the address.
        port = str(given.get("port") or "").replace(",", "")
        if "@" in f"{given.get('host')}{given.get('dbname')}" or not (port.isdigit() or not port):
            # No reason is given: it would quote the address.
            raise ConfigError(
                "the address of a database is not valid",
                where=f"database {self.name!r}",
                hint="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for signs such as / and @ in the "
                "password; or host=… dbname=… user=… password='…'",
            )
        return given

    def begin(self) -> None:
        """Begin a transaction on the open connection, or on a new one if that was closed while it was idle. Raises
        AwayError."""
        reused = self._connection is not None
        try:
            self._begin()
        except self._psycopg.OperationalError as error:
            self.close()
            if not reused:
                raise self.worded(error) from error
            self.begin()

    def _begin(self) -> None:
        if self._connection is None:
            self._connection = self._psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        cursor = self._connection.cursor()
        cursor.execute("begin isolation level read committed")
        limits = LIMITS | self._own_limits
        settings = ", ".join("set_config(%s, %s, true)" for _ in limits)
        cursor.execute(f"select {settings}", [part for pair in limits.items() for part in pair])
        # Off, the server may forget what it has committed, and the rows are gone from Kafka by then.
        cursor.execute(
            "select set_config('synchronous_commit', 'on', true) "
            "where current_setting('synchronous_commit') in ('off', 'local')"
        )
        self._opened = cursor

    def execute(self, statement: Any, parameters: Sequence[Any] = ()) -> int:
        """Run a statement in the transaction; %s is a parameter, %% a percent sign. Returns the number of its rows. Raises
        psycopg's errors."""
        assert self._opened is not None
        self._opened.execute(statement, parameters)
        count: int = self._opened.rowcount
        return count

    def rows(self, statement: Any, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query in the transaction. Raises psycopg's errors."""
        assert self._opened is not None
        found: list[tuple[Any, ...]] = self._opened.execute(statement, parameters).fetchall()
        return found

    def commit(self) -> None:
        """End the transaction. After an error it is not known whether it had an effect."""
        assert self._opened is not None
        self._opened.execute("commit")
        self._opened = None

    def undo(self) -> None:
        """End the transaction without effect."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        try:
            opened.execute("rollback")
        except self._psycopg.Error:
            self.close()

    def close(self) -> None:
        """Close the connection; the next transaction opens another one."""
        connection, self._connection, self._opened = self._connection, None, None
        if connection is not None:
            connection.close()

    def is_passing(self, error: Exception) -> bool:
        """Whether the same transaction may succeed at once: it met another one."""
        errors = self._psycopg.errors
        return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)

    def is_lost(self, error: Exception) -> bool:
        """Whether only another connection can help: this one has ended, or its server has become a standby."""
        errors = self._psycopg.errors
        return isinstance(error, self._psycopg.OperationalError | errors.ReadOnlySqlTransaction)

    def worded(self, error: Exception, table: str = "") -> AwayError:
        """An error of the server or its driver."""
        detail = getattr(getattr(error, "diag", None), "message_detail", None)
        message = f"{_first_line(error)} ({detail})" if detail else _first_line(error)
        what, hint = words(getattr(error, "sqlstate", None), message)
        where = f"{self.where}, table {table}" if table else self.where
        return AwayError(f"PostgreSQL {what}", where=where, hint=f"{hint}; {SAFE}")


def limits_in(options: str) -> dict[str, str]:
    """The time-outs that the `options` of an address set. Those would hold for the connection, and are set for each
    transaction here, too.

    >>> limits_in("-c statement_timeout=2min --lock_timeout=1s -cdeadlock_timeout=9s")
    {'statement_timeout': '2min', 'lock_timeout': '1s'}
    """
    given = re.findall(r"(?:^|\s)(?:-c\s*|--)(\w+)=(\S+)", options)
    return {name: limit for name, limit in given if name in LIMITS}


def words(state: str | None, message: str) -> tuple[str, str]:
    """What has happened and what to do, by the code that the server gives. None: there is no connection.

    >>> words("40P01", "deadlock detected")
    ('met other transactions in each attempt: deadlock detected', 'see who else writes the table')
    >>> words(None, "connection refused")[0]
    'gives no connection: connection refused'
    """
    if state is None:
        return (
            f"gives no connection: {message}",
            "see whether the server runs, and whether address, user and password are right",
        )
    for begins, (what, hint) in _WORDS.items():
        if state.startswith(begins):
            return f"{what}: {message}", hint
    return f"refuses: {message}", f"look up the code {state}"


_WORDS: Mapping[str, tuple[str, str]] = {
    "08": ("does not answer", "is the server running?"),
    "57014": ("took longer than the time-out", "see what holds the table, and whether the server is busy"),
    "57": ("ends or starts just now", "wait until it is up"),
    "55P03": ("waited for a lock of the table", "see who holds it: select * from pg_locks"),
    "25P03": ("ended a transaction that was idle for long", "was this host asleep?"),
    "40": ("met other transactions in each attempt", "see who else writes the table"),
    "25006": ("is read-only", "is it a standby? name the primary, or all hosts and target_session_attrs=read-write"),
    "23505": ("already has a row with this key", "delete that row, or name the key in the sink: key="),
    "23": ("refuses a row, by a constraint of the table", "drop the constraint, or delete what contradicts the row"),
    "22": ("cannot hold a value", "change the type of the table's column"),
    "42501": ("refuses the user", "falkirk check names the rights that the user needs"),
    "42": ("has another table than the flow's", "falkirk check lists the differences"),
    "28": ("refuses the user", "check user and password in the address"),
    "3D": ("has no such database", "create it, or correct the address"),
    "3F": ("has no such schema", "create it"),
    "53": ("is short of memory, disk or connections", "give it more"),
    "54": ("cannot hold a row of this size", "make the row, or its key, shorter"),
}  # fmt: skip
"""By the beginning of the code; the first that fits counts."""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def identifier(*names: str | None) -> Any:
    """A name, with its schema before it if that is known, as part of a statement."""
    # psycopg's own does not double a percent sign.
    text = ".".join(quoted(name) for name in names if name is not None)
    return driver().sql.SQL(text.replace("%", "%%"))


def quoted(name: str) -> str:
    """A name as people write it in a statement.

    >>> print(quoted('a "b"'))
    "a ""b""\"
    """
    return '"' + name.replace('"', '""') + '"'


def driver() -> Any:
    """psycopg. Raises ConfigError if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            f"a sink of PostgreSQL needs psycopg, which is not installed: {_first_line(error)}",
            hint="pip install 'falkirk[postgres]'",
        ) from None
    return psycopg
