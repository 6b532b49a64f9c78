"""The library of Delta Lake, where its tables are, and its errors in words.

Addresses and credentials of buckets come from the environment, as for the checkpoint store and for files. So do time-outs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from falkirk.errors import AwayError, ConfigError
from falkirk.state.objects import PREFIXES, check_url, client_options

SAFE = "nothing is lost: the rows wait in Kafka"
TIMEOUT = "60s"
"""How long one try of a request may take. The library knows no time-out for an answer that stops."""
SETTINGS = {"delta.checkpointInterval": "10"}
"""Of a table that is created here. Who opens a table, or asks how far it is, reads each commit since its last checkpoint."""
KINDS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
"""The kind of store of a URL's scheme."""


class TablePlace:
    """A folder, or a folder in a bucket, that has a table or will have one."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError if the library is not installed, or the URL cannot be one."""
        check_url(url, "the table")
        self.library = library()
        self.url, self.where = url, f"table {url}"
        parts = urlsplit(url)
        self.folder = None if parts.scheme in KINDS else Path(unquote(parts.path) if parts.scheme else url).absolute()
        """If it is one of this host."""
        self._uri = url if self.folder is None else str(self.folder)
        self._options = None if self.folder is not None else options(parts.scheme)

    def open(self) -> Any:
        """The table, as it is now; None if there is none. Raises AwayError."""
        with self.in_words():
            try:
                return self.library.DeltaTable(self._uri, storage_options=self._options)
            except self.library.exceptions.TableNotFoundError:
                return None

    def create(self, schema: Any) -> Any:
        """The table: a new one with these columns, or the one that somebody else has made meanwhile. Raises AwayError."""
        with self.in_words():
            try:
                # A retry would look for another version than the first, and so make a table of one that is there.
                only = self.library.CommitProperties(max_commit_retries=0)
                return self.library.DeltaTable.create(
                    self._uri, schema, storage_options=self._options, commit_properties=only, configuration=SETTINGS
                )
            except self.library.exceptions.DeltaError:
                if (table := self.open()) is None:
                    raise
                return table

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Errors of the library as AwayError."""
        try:
            yield
        except (self.library.exceptions.DeltaError, OSError, ValueError, RuntimeError) as error:
            raise self.worded(error) from error

    def worded(self, error: Exception) -> AwayError:
        """An error of the library."""
        what, hint = words(type(error).__name__, text_of(error))
        return AwayError(what, where=self.where, hint=f"{hint}; {SAFE}")


def words(kind: str, text: str) -> tuple[str, str]:
    """What has happened and what to do, by the class of an error.

    >>> words("TableNotFoundError", "not a table")
    ('the table is not there: not a table', 'was it deleted or moved? restore it')
    """
    if "failed validation check" in text:
        return f"the table refuses a row, by a constraint: {text}", "drop the constraint, or change the flow"
    for name, (what, hint) in _WORDS.items():
        if kind == name:
            return f"{what}: {text}", hint
    return f"the table cannot be read or written: {text}", "check its address, its settings, credentials and space"


_WORDS = {
    "TableNotFoundError": ("the table is not there", "was it deleted or moved? restore it"),
    "FileNotFoundError": ("a file of the table is gone", "was the table deleted or moved? restore it"),
    "CommitFailedError": ("the table accepts no commit", "see what its settings ask of writers"),
    "DeltaProtocolError": (
        "the library deltalake cannot write the table",
        "see what features the table needs: DeltaTable(…).protocol()",
    ),
    "SchemaMismatchError": ("the table has other columns than the flow", "falkirk check lists the differences"),
}
"""By the class of an error of the library."""


def text_of(error: Exception) -> str:
    """What an error says, in a line.

    >>> text_of(OSError("Generic S3 error\\n   \\x1b[31m↳\\x1b[0m no answer\\n"))
    'Generic S3 error: no answer'
    """
    plain = re.sub(r"\x1b\[\d+m|↳", "", str(error))
    # It would show rows.
    lines = [line.strip(" .:") for line in plain.partition("Preview of invalid data")[0].splitlines()]
    return ": ".join(line for line in lines if line)[:500] or type(error).__name__


def options(scheme: str) -> dict[str, str]:
    """How the library talks to a bucket, besides what it reads from the environment itself.

    >>> told = options("s3")
    >>> told["aws_conditional_put"], told["connect_timeout"], told["max_retries"]
    ('etag', '3s', '3')
    """
    kind = KINDS[scheme]
    told = {key: str(value) for key, value in client_options(kind, os.environ).items()}
    told |= {"timeout": os.environ.get(f"{PREFIXES[kind]}TIMEOUT", TIMEOUT), "max_retries": "3", "retry_timeout": "15s"}
    # Whatever the environment says: without it, two writers could both make the same version.
    return told | ({"aws_conditional_put": "etag"} if kind == "s3" else {})


def library() -> Any:
    """deltalake. Raises ConfigError if it is not installed."""
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"a sink of Delta Lake needs deltalake, which is not installed: {why}", hint="pip install 'falkirk[delta]'"
        ) from None
    return deltalake
