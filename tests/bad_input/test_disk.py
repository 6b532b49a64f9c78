"""A disk that is full: the run ends, and once there is room it goes on exactly.

The disk is a tmpfs of a few megabytes where this process may mount one (as root). Elsewhere a limit on the size of files,
set on the workers while they run, makes the same calls fail.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.bad_input.commands import Going
from tests.bad_input.stand import Stand, flow_file

pytestmark = pytest.mark.kafka

FLOW = flow_file(regime='fk.EagerCheckpoint(every="1s")')


class Disk:
    """The disk under a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.filler = folder, folder / "filler"
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "falkirk-test", str(folder)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def fill(self, going: Going) -> None:
        """Leave no room on it."""
        if self.mounted:
            self.pour()
            return
        supervisor = psutil.Process(going.process.pid)
        for process in [supervisor, *supervisor.children(recursive=True)]:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def pour(self) -> None:
        with self.filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 20))
            except OSError:
                pass

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(stand: Stand) -> Iterator[Disk]:
    one = Disk(stand.folder / "state")
    yield one
    stand.close()  # what runs has files open there
    one.close()


@pytest.mark.slow
def test_a_disk_that_fills_while_the_app_runs_and_is_full_when_it_starts_again(stand: Stand, disk: Disk) -> None:
    stand.topic()
    stand.bids(50)
    going = stand.start(FLOW)
    stand.settle()
    disk.fill(going)
    stand.bids(50)
    going.end().assert_says(8, "cannot be written", str(disk.folder), "make room there and start again")
    if disk.mounted:
        stand.bids(50)
        stand.cli(FLOW).assert_says(8, "No space left on device", str(disk.folder))
        disk.filler.unlink()
    stand.go_on(FLOW)
    stand.assert_exact()


def test_a_state_directory_that_cannot_be_made(stand: Stand) -> None:
    (stand.folder / "file").touch()
    stand.topic()
    shown = stand.cli(flow_file(), "--state-dir", str(stand.folder / "file" / "state"))
    shown.assert_says(8, "cannot use the state directory: Not a directory", "--state-dir")
