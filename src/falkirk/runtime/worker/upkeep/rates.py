"""What take-overs have taken on this host, in the worker's folder: a worker that starts again there knows it.

    take-over ends ──▶ Taken ──▶ rates of its stage ──▶ FOLDER/rates.json, reports, the placing of versions

It is of this host, its disk and its network. So it stays here, and each worker reports it for those who ask what a failure
would cost.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.planning import Cost, Rates, Replay, Seconds
from falkirk.connectors.kafka.client.config import logger
from falkirk.wording import counted


@dataclass(frozen=True, slots=True)
class Taken:
    """A take-over that has ended, and what it was predicted to take."""

    took: Seconds
    expected: Seconds
    fetched: int
    """Bytes of the version that was copied to this host; 0: none was."""
    replay: Replay

    def __str__(self) -> str:
        """In words, for the log.

        >>> print(Taken(Seconds(0.2, 0.1, 0.0, 1.0), Seconds(0.2, 0.1, 0.0, 0.9), 0, Replay(30, 4_000)))
        1.30 s (predicted 1.20 s): naming 0.20 s, opening 0.10 s, replay of 4,000 records 1.00 s
        """
        parts = [f"naming {self.took.name:.2f} s", f"opening {self.took.open:.2f} s"]
        if self.fetched:
            parts.append(f"fetching {counted(self.fetched, 'byte')} {self.took.fetch:.2f} s")
        if any(self.replay):
            parts.append(f"replay of {counted(self.replay.records, 'record')} {self.took.replay:.2f} s")
        return f"{self.took.total:.2f} s (predicted {self.expected.total:.2f} s): {', '.join(parts)}"


class RateBook:
    """The rates of a worker, by stage. Of one thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder they are forgotten at the end. What cannot be read is not measured yet."""
        self._path = None if folder is None else folder / "rates.json"
        self.stages: dict[str, Rates] = {}
        self.taken: dict[TaskId, Taken] = {}
        """The last take-over of each task here."""
        if self._path is not None:
            with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                self.stages = _decode(self._path.read_bytes())

    def of(self, stage: str) -> Rates:
        """The rates of a stage."""
        return self.stages.get(stage, Rates())

    def note(self, task: TaskId, took: Seconds, fetched: int, replay: Replay, presumed: Cost) -> Taken:
        """A task has been taken over."""
        before = self.of(task.stage)
        taken = self.taken[task] = Taken(took, before.expect(fetched, replay, presumed), fetched, replay)
        self.stages[task.stage] = before.saw(took, fetched, replay, presumed)
        self._save()
        logger.info("task %s was taken over in %s", task, taken, extra={"task": str(task)})
        return taken

    def _save(self) -> None:
        """At best effort: it is measured again if it is lost."""
        if self._path is not None:
            part = self._path.with_suffix(".part")
            with suppress(OSError):
                part.write_bytes(msgspec.json.encode(self.stages))
                part.replace(self._path)


_decode = msgspec.json.Decoder(dict[str, Rates]).decode
