"""What is written on standard error, as machines read it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.runtime.observe.test_board import app

from falkirk.cli import main as cli
from falkirk.errors import ClusterError, StateError
from falkirk.runtime.host import logs
from falkirk.runtime.messages.protocol import Failed, error_of
from falkirk.runtime.observe.board import Board
from falkirk.runtime.observe.watch import LogShow


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logs, "_choice", type(logs._choice)())
    before = list(logging.root.handlers)
    yield
    logging.root.handlers = before


def objects(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What was written, each line of it an object."""
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


def test_a_record_is_an_object_with_what_its_process_is(capsys: pytest.CaptureFixture[str]) -> None:
    logging.root.handlers = []
    logs.setup_logging("info", "json")
    logs.about(app="shop", worker=3)
    logging.getLogger("falkirk.kafka").warning(
        "no %s\nleft", "room", extra={"task": "stats/0", "step": 7, "hint": "make some"}
    )
    (found,) = objects(capsys)
    assert datetime.fromisoformat(found.pop("time")).utcoffset() is not None
    assert found.pop("pid") > 0
    assert found == {
        "level": "warning", "logger": "falkirk.kafka", "message": "no room\nleft", "app": "shop", "worker": 3,
        "task": "stats/0", "step": 7, "hint": "make some",
    }  # fmt: skip


def test_an_exception_is_in_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    logging.root.handlers = []
    logs.setup_logging("info", "json")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("falkirk").exception("it failed")
        logs.print_trace()
    logged, ended = objects(capsys)
    assert (logged["message"], logged["level"]) == ("it failed", "error")
    assert (ended["message"], ended["level"]) == ("ValueError('wrong')", "critical")
    for found in (logged, ended):
        assert found["trace"].endswith("ValueError: wrong") or found["trace"].endswith("ValueError: wrong\n")


def test_errors_keep_what_where_and_what_to_do_apart(capsys: pytest.CaptureFixture[str]) -> None:
    logs.use("json")
    cli.tell(ClusterError("no broker answers", where="127.0.0.1:1", hint="start one"))
    cli.tell(error_of(Failed("it is unreadable", 7, where="version 7", hint="restore it", kind="StateError")))
    first, second = objects(capsys)
    told = ("level", "error", "message", "where", "hint", "exit_code")
    assert [first[k] for k in told] == ["error", "ClusterError", "no broker answers", "127.0.0.1:1", "start one", 3]
    assert [second[k] for k in told] == ["error", "StateError", "it is unreadable", "version 7", "restore it", 7]


def test_what_is_wrong_with_a_command_is_an_object_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["falkirk", "run", "app:flow", "--log-format", "json"])
    monkeypatch.delenv("FALKIRK_BROKERS", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    (found,) = objects(capsys)
    assert (found["message"], found["error"]) == ("no brokers given", "ConfigError")


def test_news_is_objects_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.use("json")
    logs.about(app="shop")
    theirs = logs.line("warning", "py4j", "from a driver", {})
    LogShow(Board(app(), 1), None).say(["something happened", theirs])
    logs.say("leaving")
    happened, driver, leaving = objects(capsys)
    assert (happened["message"], happened["level"], happened["app"]) == ("something happened", "info", "shop")
    assert (driver["message"], driver["logger"]) == ("from a driver", "py4j")
    assert leaving["message"] == "leaving"


def test_text_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.say("something happened")
    cli.tell(StateError("it is unreadable", where="version 7", hint="restore it"))
    assert capsys.readouterr().err == (
        "something happened\nerror: it is unreadable\n  where: version 7\n  to do: restore it\n"
    )
