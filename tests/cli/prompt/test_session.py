"""Statements of the prompt on a real Kafka."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tests.waiting import PATIENCE_S

from falkirk.cli.prompt.apps import Apps
from falkirk.cli.prompt.session import Session
from falkirk.errors import ConfigError, CrashError, DefinitionError
from falkirk.runtime.host.settings import Settings
from falkirk.stream.sql.catalog import Catalog

pytestmark = pytest.mark.kafka


@pytest.fixture
def session(kafka: str, tmp_path: Path, topic_prefix: str) -> Iterator[Session]:
    apps = Apps(Settings(kafka, str(tmp_path / "state"), prefix=topic_prefix.rstrip("-")), tmp_path)
    made = Session(apps, Catalog(), Console(file=io.StringIO()), lambda: None)
    yield made
    made.close()


def test_a_select_shows_what_was_inserted_and_leaves_no_topic(
    session: Session, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"{topic_prefix}bids"
    assert session.run(f"create table bids (auction bigint, price bigint) with (topic='{topic}')")
    assert session.run("insert into bids values (1, 120), (2, 90), (1, 130)")
    capsys.readouterr()
    session.run("select auction, count(*) as n, max(price) as top from bids group by auction order by auction")
    assert capsys.readouterr().out.splitlines()[2:] == ["      1 | 2 | 130", "      2 | 1 |  90", "(2 rows)"]
    left = [name for name in session.apps.topics.names() if name.startswith((topic_prefix.rstrip("-"), "sql-"))]
    assert left == [topic]


def test_statements_without_a_query_say_what_there_is(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.run("create table t (a bigint, b varchar[]) with (topic='all', key='a')")
    session.run("create view v as select a from t")
    capsys.readouterr()
    session.run("show tables")
    assert capsys.readouterr().out.splitlines()[2:] == ["t    | table | all   | key=a", "v    | view  |       |"]
    session.run("describe t")
    assert capsys.readouterr().out.splitlines()[2:] == ["a      | bigint", "b      | varchar[]"]
    session.run("explain select a from v")
    assert "read    source t: topic all" in capsys.readouterr().out
    session.run("help")
    assert "insert into t values" in capsys.readouterr().out
    assert not session.run("quit")
    for wrong in ("show topics", "stop sql-1", "begin transaction"):
        with pytest.raises(ConfigError):
            session.run(wrong)
    with pytest.raises(DefinitionError):
        session.run("describe u")


@pytest.mark.slow
def test_a_query_that_fails_says_why(session: Session, topic_prefix: str) -> None:
    session.run(f"create table t (a bigint) with (topic='{topic_prefix}t')")
    session.run("insert into t values (9223372036854775807), (1)")
    with pytest.raises(CrashError, match="beyond Int64"):
        session.run("select sum(a) as total from t")


@pytest.mark.slow
def test_the_prompt_follows_a_result_on_a_terminal_until_ctrl_c(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait("sql> ")
    terminal.type("create table bids (auction bigint, price bigint);\r")
    terminal.wait("table bids created")
    terminal.type("select pirce\r")
    terminal.wait("...> ")
    terminal.type("from bids;\r")
    terminal.wait("did you mean 'price'")
    terminal.type("create table tops as select auction, max(price) as top from bids group by auction;\r")
    terminal.wait("writes to tops")
    terminal.type("insert into bids values (1, 120), (1, 130), (2, 90);\r")
    terminal.wait("3 rows inserted")
    terminal.type("select * from tops order by top;\r")
    terminal.wait("1 | 130")
    terminal.type("\x03")
    terminal.wait("stopped")
    terminal.type("quit\r")
    assert terminal.ended() == 0
    again = subprocess.run(
        terminal.command,
        input="show tables;",
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "tops | table | tops" in again.stdout, "tables are there in the next session"


class Terminal:
    """The prompt, as somebody sees it."""

    def __init__(self, folder: Path) -> None:
        self.command = [sys.executable, "-m", "falkirk", "sql", "--dev", "--state-dir", str(folder / "state")]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", "XDG_DATA_HOME": str(folder)}
        self.process, self.screen = pty.fork()
        if not self.process:
            os.chdir(folder)
            os.execve(sys.executable, self.command, environment)
        self.seen = ""

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self.screen, keys.encode())

    def wait(self, words: str, patience: float = PATIENCE_S) -> None:
        until = time.monotonic() + patience
        while words not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen):
            assert time.monotonic() < until, self.seen
            if select.select([self.screen], [], [], 0.5)[0]:
                self.seen += os.read(self.screen, 65536).decode(errors="replace")

    def ended(self) -> int:
        """The exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
