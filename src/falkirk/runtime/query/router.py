"""Answers a question: finds the tasks that it is about, asks each here or at its owner, and makes one answer of theirs.

not forwarded     each task here, or once at its owner        ──▶ the whole answer
forwarded         one task, here                              ──▶ its part, or 421: a request makes at most one hop
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from falkirk.errors import FalkirkError
from falkirk.runtime.app.app import App
from falkirk.runtime.query.answers import Part, read, rows_of
from falkirk.runtime.query.forwarding import MISDIRECTED, WAIT
from falkirk.runtime.query.owners import Owner
from falkirk.runtime.query.questions import Question, Refusal, askable, limited, question_of, token_of
from falkirk.state.rocks import StoreSnapshot
from falkirk.stream.access.endpoints import plain
from falkirk.stream.access.placing import Placing, partitioners_of, placing_of, puts_here
from falkirk.stream.dataflow.partitioners import SOME, Partitioners
from falkirk.wording import counted

READS = 4
"""How many snapshots are read at a time: reading takes the interpreter from the worker's own thread."""

POLL = 0.01
"""Seconds between two looks whether a step has committed."""


class NotHere(Exception):
    """A task does not run in this worker; what follows "task …" in words. `coming`: it will soon."""

    def __init__(self, what: str, *, coming: bool) -> None:
        super().__init__(what)
        self.coming = coming


class Tasks(Protocol):
    """The tasks that run in this worker."""

    def open(self, partition: int) -> AbstractContextManager[StoreSnapshot]:
        """The state of a task, by its partition of the steps topic, at its last committed step. Keep the block short. Raises
        NotHere."""
        ...


Forward = Callable[[Owner, str, str], Part]
"""Asks the owner of a task: which task, and the request's path and parameters. Raises Refusal."""


class Router:
    """Of one worker, as long as the app keeps its layout."""

    def __init__(self, app: App, tasks: Tasks, owner_of: Callable[[str], Owner | None], forward: Forward) -> None:
        self._app, self._tasks, self._owner_of, self._forward = app, tasks, owner_of, forward
        self._numbers = {str(b.task.id): b.task.steps.partition for b in app.tasks}
        self._reading = threading.BoundedSemaphore(READS)
        self._known: dict[tuple[str, str, int], Partitioners] = {}

    def answer(self, target: str, forwarded: str = "") -> tuple[int, bytes]:
        """Status and JSON for a path with parameters. `forwarded`: the one task that another worker asks for. Raises
        Refusal."""
        question = question_of(self._app.plan, target)
        if question is None:
            return 200, msgspec.json.encode({"app": self._app.name, "state": askable(self._app.plan)})
        placing = self._placing(question)
        if forwarded:
            return 200, msgspec.json.encode(self._part(question, placing, forwarded, target, hop=True))
        names = [f"{question.stage.id}/{n}" for n in self._asked(question, placing)]
        if not question.whole_key:
            return self._rows(question, placing, names, target)
        parts, refused = list[Part](), list[Refusal]()
        for name in names:
            try:
                part = self._part(question, placing, name, target, hop=False)
            except Refusal as refusal:
                refused.append(refusal)
                continue
            if part.rows:
                return 200, _row(question, part)
            if not part.elsewhere:
                parts.append(part)
        if refused:
            raise refused[0]
        return 404, _nothing(question, parts)

    def _placing(self, question: Question) -> Placing:
        stage, layout = question.stage, self._app.layout
        tasks = sum(b.task.id.stage == stage.id for b in self._app.tasks)
        key = question.kept_by.placed_by(question.name)
        return placing_of(stage, key, question.table, tasks, layout.partitions)

    def _asked(self, question: Question, placing: Placing) -> list[int]:
        """The numbers of the tasks that the question is about."""
        tasks = placing.candidates(placing.spelt(question.columns))
        if question.task is not None:
            if question.task >= placing.tasks:
                raise Refusal(
                    404, f"stage {question.stage.id!r} has {counted(placing.tasks, 'task')}: no {question.task}"
                )
            return [question.task]
        return tasks if question.after is None else [task for task in tasks if task >= question.after[0]]

    def _rows(self, question: Question, placing: Placing, names: list[str], target: str) -> tuple[int, bytes]:
        """Of many keys: task by task, until there are enough."""
        told, left, following = list[dict[str, Any]](), question.limit, ""
        for name in names:
            if not left:
                following = token_of(_number(name), b"")
                break
            part = self._part(replace(question, limit=left), placing, name, limited(target, left), hop=False)
            if not part.elsewhere:
                told.append({"task": part.task, "step": part.step, "time": part.time, "rows": part.rows})
            left, following = max(0, left - len(part.rows)), part.next
            if following:
                break
        return 200, msgspec.json.encode({"operator": question.operator, "tasks": told, "next": following or None})

    def _part(self, question: Question, placing: Placing, name: str, target: str, *, hop: bool) -> Part:
        """What one task has to say, here or at its owner."""
        partition = self._numbers.get(name)
        if partition is None or not name.startswith(f"{question.stage.id}/"):
            raise Refusal(MISDIRECTED, f"stage {question.stage.id!r} has no task {name!r}")
        try:
            return self._here(question.within(_number(name)), placing, name, partition)
        except NotHere as why:
            if why.coming or hop:
                raise Refusal(503 if why.coming else MISDIRECTED, f"task {name} {why}", again=1) from None
        owner = self._owner_of(name)
        if owner is None:
            raise Refusal(503, f"no worker runs task {name}, as far as is known", again=1)
        return self._forward(owner, name, target)

    def _here(self, question: Question, placing: Placing, name: str, partition: int) -> Part:
        """The part of a task that runs here, once it has committed the step that the question waits for."""
        deadline = time.monotonic() + WAIT
        while True:
            step, part = self._look(question, placing, name, partition)
            if part is not None:
                return part
            if step < 0:
                raise Refusal(503, f"task {name} has committed no step yet", again=1)
            if time.monotonic() >= deadline:
                what = f"task {name} has not committed step {question.min_step} yet: its last is {step}"
                raise Refusal(503, what, again=1)
            time.sleep(POLL)

    def _look(self, question: Question, placing: Placing, name: str, partition: int) -> tuple[int, Part | None]:
        """The task's last committed step, and its part, unless the question waits for a later step."""
        number, spelt = _number(name), placing.spelt(question.columns)
        if not self._reading.acquire(timeout=WAIT):
            raise Refusal(503, "there are too many questions at a time", again=1)
        try:
            with self._tasks.open(partition) as snapshot:
                at = snapshot.progress
                if spelt is not None and self._elsewhere(placing, question, number, spelt, snapshot):
                    return at.step, Part(name, at.step, at.clock, elsewhere=True)
                if at.step < max(0, question.min_step):
                    return at.step, None
                pairs, following = read(question, number, snapshot, placing.shards(spelt))
            return at.step, Part(name, at.step, at.clock, rows_of(question, pairs), following)
        except FalkirkError as error:
            raise Refusal(500, error.what, where=error.where, hint=error.hint) from error
        finally:
            self._reading.release()

    def _elsewhere(
        self, placing: Placing, question: Question, task: int, spelt: bytes, snapshot: StoreSnapshot
    ) -> bool:
        """Whether the partitioner of the topic's writers, as the task's own keys show it, puts the key into another task."""
        if len(placing.candidates(spelt)) == 1:
            return False
        name = question.operator, question.name, task
        found = self._known.get(name)
        if found is None:
            stored: list[bytes] = []
            for span in question.table.spans(None):
                stored += [key for key, _ in snapshot.pairs.scan(*span, SOME - len(stored))]
                if len(stored) >= SOME:
                    break
            if (found := partitioners_of(placing, task, stored)) is None:
                return False
            self._known[name] = found
        return not puts_here(found, spelt)


def _number(task: str) -> int:
    return int(task.rpartition("/")[2])


def _row(question: Question, part: Part) -> bytes:
    """The answer about a key that has state."""
    at = {"task": part.task, "step": part.step, "time": part.time}
    if not question.one_row:
        rows = {"rows": [_Row.of(row).row for row in part.rows], "next": part.next or None}
        return msgspec.json.encode({"operator": question.operator, "key": _key(question), **rows, **at})
    row = _Row.of(part.rows[0])
    return msgspec.json.encode({"operator": question.operator, "key": row.key, "row": row.row, **at})


def _nothing(question: Question, parts: list[Part]) -> bytes:
    """The answer about a key without state: as of which step of each task that may have it."""
    at: dict[str, Any] = {"task": None, "step": None, "time": None}
    if len(parts) == 1:
        at = {"task": parts[0].task, "step": parts[0].step, "time": parts[0].time}
    else:
        at["tasks"] = [{"task": part.task, "step": part.step, "time": part.time} for part in parts]
    return msgspec.json.encode({"operator": question.operator, "key": _key(question), "row": None, **at})


def _key(question: Question) -> msgspec.Raw:
    assert question.columns is not None
    (row,) = question.columns.rows(named=True)

    return msgspec.Raw(msgspec.json.encode({name: plain(value) for name, value in row.items()}))


class _Row(msgspec.Struct, frozen=True):
    """A row as it is in a part."""

    key: msgspec.Raw
    row: msgspec.Raw

    @classmethod
    def of(cls, data: msgspec.Raw) -> _Row:
        return _decode(data)


_decode = msgspec.json.Decoder(_Row).decode
