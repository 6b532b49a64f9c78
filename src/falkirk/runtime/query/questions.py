"""A URL as a question about state.

/state                                 what there is to ask
/state/OPERATOR/KEY                    the row of a key; of several columns: a JSON array
/state/OPERATOR?COLUMN=VALUE&…         the same, if all columns of the key are given; the first ones only: all keys with them
/state/OPERATOR                        all keys

table=NAME      another table of the operator than its main one
limit=N         rows in an answer
after=TOKEN     continue after the last row of an answer: its `next`
task=N          only this task of the operator's stage
min-step=N      wait until the task has committed this step
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec
import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.state import key_of
from falkirk.stream.access.stored_state import Table, operator_of, table_of
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage

ROWS, MOST = 100, 1000
"""How many rows an answer has, if the question does not say so; and at most."""

OPTIONS = ("table", "limit", "after", "task", "min-step")
STATE = "/state"


class Refusal(Exception):
    """No answer, and why: an HTTP status, and words. `again`: seconds after which the same question may have an answer."""

    def __init__(self, status: int, what: str, *, where: str = "", hint: str = "", again: int = 0) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.hint, self.again = status, what, where, hint, again

    def body(self) -> bytes:
        """As JSON."""
        said = {"error": self.what, "where": self.where, "hint": self.hint}
        return msgspec.json.encode({name: words for name, words in said.items() if words})


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one table."""

    operator: str
    name: str
    """Of the operator's table."""
    table: Table
    kept_by: Operator
    stage: PhysicalStage
    columns: pl.DataFrame | None = None
    """The key, or its first columns, in one row; None: every key."""
    limit: int = ROWS
    after: tuple[int, bytes] | None = None
    """The task and the stored key after which to continue."""
    task: int | None = None
    min_step: int = 0

    @property
    def whole_key(self) -> bool:
        """Whether it is about one key."""
        return self.columns is not None and self.columns.width == len(self.table.keys)

    @property
    def one_row(self) -> bool:
        """Whether it is about one key that has at most one row."""
        return self.whole_key and not self.table.indexed and not self.table.ordered

    def within(self, task: int) -> Question:
        """The same of one task, which begins after the place where an earlier task may have stopped."""
        return replace(self, after=self.after if self.after is not None and self.after[0] == task else None)


def question_of(plan: Plan, target: str) -> Question | None:
    """The question of a request's path and parameters; None: what there is to ask. Raises Refusal."""
    path, _, parameters = target.partition("?")
    if path.rstrip("/") == STATE:
        return None
    parts = path.removeprefix(f"{STATE}/").split("/")
    if not path.startswith(f"{STATE}/") or len(parts) > 2 or not parts[0]:
        raise Refusal(404, "there is no such page", hint="there are /state, /state/OPERATOR and /state/OPERATOR/KEY")
    given = _once(parse_qsl(parameters, keep_blank_values=True))
    table = given.get("table", "")
    operator = unquote(parts[0])
    try:
        stage, kept_by = operator_of(plan, operator)
        found = table_of(plan, f"{operator}/{table}" if table else operator)
    except ConfigError as error:
        raise Refusal(404, error.what, where=error.where, hint=error.hint) from None
    question = Question(
        operator,
        table or kept_by.main_table,
        found,
        kept_by,
        stage,
        limit=_number(given, "limit", ROWS, 1, MOST),
        after=_after(given.get("after")),
        task=_number(given, "task", 0, 0) if "task" in given else None,
        min_step=_number(given, "min-step", 0, 0),
    )
    columns = {name: text for name, text in given.items() if name not in OPTIONS}
    key = unquote(parts[1]) if len(parts) == 2 else None
    return replace(question, columns=_columns(found, key, columns))


def token_of(task: int, key: bytes) -> str:
    """Where an answer stopped, as text for a URL.

    >>> _after(token_of(3, b"key"))
    (3, b'key')
    """
    return base64.urlsafe_b64encode(task.to_bytes(4, "big") + key).decode().rstrip("=")


def limited(target: str, limit: int) -> str:
    """The same path and parameters, for at most so many rows.

    >>> limited("/state/stats?day=2026-01-01&limit=9", 4)
    '/state/stats?day=2026-01-01&limit=4'
    """
    path, _, parameters = target.partition("?")
    pairs = [(name, text) for name, text in parse_qsl(parameters, keep_blank_values=True) if name != "limit"]
    return f"{path}?{urlencode([*pairs, ('limit', str(limit))])}"


def _after(token: str | None) -> tuple[int, bytes] | None:
    if token is None:
        return None
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:  # no base64, or not even ASCII
        data = b""
    if len(data) < 4:
        raise Refusal(400, "after= is not the `next` of an answer")
    return int.from_bytes(data[:4], "big"), data[4:]


def _once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, text in pairs:
        if name in given:
            raise Refusal(400, f"{name!r} is given twice")
        given[name] = text
    return given


def _number(given: Mapping[str, str], name: str, default: int, least: int, most: int = 2**62) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        upper = f" to {most:,}" if most < 2**62 else " or more"
        raise Refusal(400, f"{name}={text!r} is not a number from {least}{upper}")
    return int(text)


def _columns(table: Table, key: str | None, given: Mapping[str, str]) -> pl.DataFrame | None:
    """The columns of the key that are given, with their types."""
    names = list(table.keys)
    types = ", ".join(f"{name}: {dtype}" for name, dtype in table.keys.items())
    if key is not None and given:
        raise Refusal(400, "the key is given in the path and by its columns", where=f"the key's columns: {types}")
    if unknown := [name for name in given if name not in names]:
        raise Refusal(400, f"the key has no column {unknown[0]!r}", hint=did_you_mean(unknown[0], [*names, *OPTIONS]))
    if key is None and not given:
        return None
    texts = [given.get(name) for name in names] if key is None else _texts(table, key, types)
    count = len(given) if key is None else len(texts)
    if key is None and set(given) != set(names[:count]):
        raise Refusal(
            400,
            "only the first columns of a key can be given without the others",
            where=f"the key's columns, in their order: {types}",
        )
    leading = replace(table, keys=pl.Schema(dict(list(table.keys.items())[:count]))) if key is None else table
    try:
        return key_of(leading, texts[:count] if key is None else texts)
    except ConfigError as error:
        raise Refusal(400, error.what, where=error.where, hint=error.hint) from None


def _texts(table: Table, key: str, types: str) -> list[str | None]:
    """The columns of a key in the path, as text."""
    if len(table.keys) == 1:
        return [key]
    try:
        values = _decode_key(key)
    except (msgspec.DecodeError, RecursionError):
        raise Refusal(
            400, f"{key[:200]!r} is not a JSON array of the key's columns", where=f"the key's columns: {types}",
            hint='give one, for example ["JFK","LAX"] (escaped for a URL), or ?column=value&…',
        ) from None  # fmt: skip
    return [None if v is None else v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in values]


@dataclass(frozen=True, slots=True)
class Askable:
    """A table, for those who want to know what there is."""

    operator: str
    table: str
    key: dict[str, str] = field(default_factory=dict)
    """The type of each column."""


def askable(plan: Plan) -> list[Askable]:
    """All tables that can be asked."""
    return [
        Askable(o.id, table, {name: str(dtype) for name, dtype in o.state_keys(table).items()})
        for stage in plan.planned
        for o in stage.operators
        if o.stateful
        for table in o.table_schemas()
    ]


# Made at import: two threads that decode a type for the first time can crash.
_decode_key = msgspec.json.Decoder(list[Any]).decode
