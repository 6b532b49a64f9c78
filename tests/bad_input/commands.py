"""Commands of the command line: run to their end or left running, and what they leave on the screen."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Screen:
    """What a command left on the screen."""

    code: int
    text: str

    @property
    def error(self) -> str:
        """What it said last: from its one "error: " to the end."""
        assert "Traceback" not in self.text, self.text
        assert self.text.count("error: ") == 1, self.text
        return self.text.partition("error: ")[2]

    def assert_says(self, code: int, *words: str) -> None:
        """It ended with this code, and with words on what, where and what to do."""
        assert self.code == code, self.text
        for word in (*words, "\n  where: ", "\n  to do: "):
            assert word in self.error, f"{word!r} is not in: {self.error}"


class Going:
    """A command that runs, and what it has said so far."""

    def __init__(self, command: list[str], said: Path, **environment: str) -> None:
        self.said = said
        with said.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})

    def end(self, timeout: float = PATIENCE_S) -> Screen:
        """Wait for its end."""
        return Screen(self.process.wait(timeout), self.said.read_text())

    def leave(self) -> Screen:
        """Tell it to end."""
        self.process.terminate()
        return self.end()

    def kill(self) -> None:
        """kill -9; its workers die with it."""
        self.process.kill()
        self.process.wait()


def screen(command: list[str], timeout: float = PATIENCE_S, **environment: str) -> Screen:
    """Run a command to its end."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, timeout=timeout, capture_output=True, text=True, check=False
    )
    return Screen(done.returncode, done.stdout + done.stderr)
