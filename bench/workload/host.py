"""A run that is lost with its stores, as a host is. What becomes of its tasks is asked by the commands that users have."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOK = re.compile(r"task (\S+) was taken over in ([0-9.]+) s ")
KEYS = 5_000
"""Of the records that it is fed."""
DEADLINE = 600.0


class Host:
    """A run that is lost with its stores. What its workers have measured stays, as other hosts would have measured it."""

    def __init__(self, brokers: str, folder: Path, app: str, flow: str) -> None:
        self.brokers, self.folder, self.app = brokers, folder, app
        (folder / "app.py").write_text(flow)
        self.run: subprocess.Popen[bytes] | None = None

    def call(self, *arguments: str) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        command = [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout or done.stderr

    def start(self) -> None:
        """Start the run. What it logs replaces the log of the one before."""
        options = ["--state-dir", "state", "--checkpoints", (self.folder / "copies").as_uri(), "--log-level", "info"]
        command = [sys.executable, "-m", "falkirk", "run", "app.py:flow", "--brokers", self.brokers, *options]
        with (self.folder / "log").open("w") as log:
            self.run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log)

    def settle(self, records: int, stages: int = 2) -> None:
        """Wait until all tasks run, and each stage has read so many records."""
        begun = time.monotonic()
        while time.monotonic() - begun < DEADLINE:
            code, said = self.call("status", self.app, "--json")
            if code == 0:
                found = json.loads(said)
                read = sum(i["position"] for t in found["tasks"] for i in t["inputs"])
                if found["state"] == "running" and found["lag"] == 0 and read >= stages * records:
                    return
            time.sleep(0.5)
        raise SystemExit((self.folder / "log").read_text())

    def plan(self) -> dict[str, Any]:
        """Once the workers have reported what they measured: every five seconds."""
        time.sleep(6)
        code, said = self.call("plan", self.app, "--if-dies", socket.gethostname(), "--json")
        if code:
            raise SystemExit(said)
        found: dict[str, Any] = json.loads(said)
        return found

    def checkpoint(self) -> None:
        """Make a version of each task."""
        code, said = self.call("checkpoint", self.app)
        if code:
            raise SystemExit(said)

    def close(self) -> None:
        """kill -9 of the run; its workers end with it."""
        if self.run is not None:
            self.run.kill()
            self.run.wait()

    def lose(self) -> None:
        """kill -9 of the run, and its stores are deleted."""
        self.close()
        time.sleep(3)
        for worker in (self.folder / "state" / self.app).glob("worker-*"):
            for store in worker.iterdir():
                if store.is_dir():
                    shutil.rmtree(store)

    def took(self, tasks: int) -> dict[str, float]:
        """Once all tasks have been taken over. (The last reports of those that died are still there.)"""
        begun = time.monotonic()
        while time.monotonic() - begun < DEADLINE:
            found = {task: float(seconds) for task, seconds in TOOK.findall((self.folder / "log").read_text())}
            if len(found) == tasks:
                return found
            time.sleep(0.5)
        raise SystemExit((self.folder / "log").read_text())
