"""What processes write on standard error: lines for people, or one JSON object per line for log collectors.

text    12:34:56.789 4711 W task stats/0 has another owner
json    {"time": "2026-01-31T12:34:56.789Z", "level": "warning", "logger": "falkirk.kafka", "message": "task stats/0 has
        another owner", "pid": 4711, "app": "shop", "worker": 0, "task": "stats/0"}
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from falkirk.errors import FalkirkError

FIELDS = ("task", "step", "where", "hint")
"""Fields that a record may have beside its message: `logger.warning(…, extra={"task": …})`."""

SAID = "falkirk"
"""The logger name of lines that are not log records: lines for people."""


@dataclass(slots=True)
class _Choice:
    """The output form of this process, and its fields."""

    json: bool = False
    about: dict[str, object] = field(default_factory=dict)


_choice = _Choice()


def use(name: str) -> None:
    """Write in this form from now on: "text" or "json"."""
    _choice.json = name == "json"


def as_json() -> bool:
    """Whether the output is JSON."""
    return _choice.json


def about(**fields: object) -> None:
    """What this process is: app, worker. Every object has these fields from now on."""
    _choice.about.update(fields)


def setup_logging(level: str, form: str) -> None:
    """Log records on standard error."""
    use(form)
    logging.basicConfig(level=level.upper(), stream=sys.stderr)
    for handler in logging.root.handlers:
        handler.setFormatter(
            Json()
            if as_json()
            else logging.Formatter(
                f"%(asctime)s.%(msecs)03d {os.getpid()} %(levelname).1s %(message)s", datefmt="%H:%M:%S"
            )
        )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if level != "debug":
        logging.getLogger("librdkafka").setLevel(logging.CRITICAL + 1)


class Json(logging.Formatter):
    """A record as an object.

    >>> record = logging.LogRecord("falkirk", logging.WARNING, "", 0, "no %s", ("room",), None)
    >>> record.task = "stats/0"
    >>> shown = json.loads(Json().format(record))
    >>> [shown[name] for name in ("level", "logger", "message", "task")]
    ['warning', 'falkirk', 'no room', 'stats/0']
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info and record.exc_info[0] is not None:
            fields["trace"] = self.formatException(record.exc_info)
        return line(record.levelname.lower(), record.name, record.getMessage(), fields, record.created)


def line(level: str, logger: str, message: str, fields: Mapping[str, object], at: float | None = None) -> str:
    """An object, as a line. `at`: seconds since 1970; default: now."""
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    shown = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "message": message,
        "pid": os.getpid(),
        **_choice.about,
        **fields,
    }
    return json.dumps(shown, ensure_ascii=False, default=str)


def formed(text: str) -> str:
    """A line for people, in the output form; what another process of ours has already formed stays as it is."""
    if not as_json() or text.startswith('{"time": '):
        return text
    return line("info", SAID, text, {})


def stamped(text: str) -> str:
    """With the time of day, unless the output already has it."""
    return text if as_json() else f"{time.strftime('%H:%M:%S')} {text}"


def say(text: str) -> None:
    """Write a line for people."""
    sys.stderr.write(formed(text) + "\n")
    sys.stderr.flush()


def error_line(error: FalkirkError) -> str:
    """An error as an object: what, where and hint are separate."""
    told = {"where": error.where, "hint": error.hint}
    fields = {"error": type(error).__name__, "exit_code": error.exit_code, **{k: v for k, v in told.items() if v}}
    return line("error", SAID, error.what, fields)


def print_trace() -> None:
    """Write the exception that is being handled."""
    if as_json():
        error = sys.exc_info()[1]
        print(line("critical", SAID, repr(error), {"trace": traceback.format_exc()}), file=sys.stderr)  # noqa: T201
    else:
        traceback.print_exc()
    sys.stderr.flush()
