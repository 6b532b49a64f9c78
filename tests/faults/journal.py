"""What the proxy did: each fault, and what became of what was held."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.faults.faults import At
from tests.faults.frames import Request, shown
from tests.waiting import PATIENCE_S


class Entry(NamedTuple):
    """One thing that happened."""

    at: float
    """Seconds since 1970."""
    what: str
    """A fault in words; `delivered`, `answered` or `lost` of what was held."""
    request: Request
    error: int | None = None
    """The broker's error code, of what was held and has been answered."""

    @property
    def is_fault(self) -> bool:
        """Whether this is a fault, and not what became of one."""
        return self.what.startswith(tuple(At))

    def __str__(self) -> str:
        request = self.request
        kind = shown(request.api) + (
            (" commit" if request.commits else " abort") if shown(request.api) == "EndTxn" else ""
        )
        of = f" of {request.transactional_id}" if request.transactional_id else ""
        said = "" if self.error is None else f", error {self.error}"
        return f"{self.at:.3f} {kind} {request.nth}{of}, connection {request.connection}: {self.what}{said}"


class Journal:
    """All that happened, in its order. With a file it is there, too, as JSON a line."""

    def __init__(self, title: str = "", file: Path | None = None) -> None:
        self.title = title
        self.entries: list[Entry] = []
        self.faults: Counter[tuple[str, str]] = Counter()
        """How many faults there were, by API and fault."""
        self._file = file.open("w") if file else None
        self._more = threading.Condition()

    def fault(self, what: str, request: Request) -> None:
        """A fault hit a request."""
        self.faults[shown(request.api), what] += 1
        self.add(what, request)

    def add(self, what: str, request: Request, error: int | None = None) -> None:
        """Something happened."""
        entry = Entry(time.time(), what, request, error)
        with self._more:
            self.entries.append(entry)
            self._more.notify_all()
        if self._file:
            self._file.write(json.dumps({**entry._asdict(), "request": request._asdict()}) + "\n")

    def wait(self, holds: Callable[[list[Entry]], bool], timeout: float = PATIENCE_S) -> None:
        """Until something holds of the entries. Raises TimeoutError, which tells what there is."""
        with self._more:
            if not self._more.wait_for(lambda: holds(self.entries), timeout):
                raise TimeoutError(f"waited {timeout:g} s for the proxy; it did this:\n{self}")

    def wait_for(self, what: str, timeout: float = PATIENCE_S) -> Entry:
        """The first entry whose words begin with these."""
        found: list[Entry] = []

        def holds(entries: list[Entry]) -> bool:
            found[:] = [entry for entry in entries if entry.what.startswith(what)]
            return bool(found)

        self.wait(holds, timeout)
        return found[0]

    @property
    def total(self) -> int:
        """How many faults."""
        return self.faults.total()

    def close(self) -> None:
        """Complete the file."""
        if self._file:
            self._file.close()

    def __str__(self) -> str:
        return "\n".join([self.title, *map(str, self.entries)])
