"""A producer that is fenced while its records are on their way leaves its process whole."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest
from tests.waiting import PATIENCE_S

CHECKS = "libc_malloc_debug.so.0"


def heap_checks() -> dict[str, str]:
    """Environment under which glibc finds a damaged heap at once; elsewhere nothing, and the damage is found by chance."""
    try:
        ctypes.CDLL(CHECKS)
    except OSError:
        return {}
    return {"LD_PRELOAD": CHECKS, "GLIBC_TUNABLES": "glibc.malloc.check=3", "MALLOC_PERTURB_": "165"}


@pytest.mark.kafka
@pytest.mark.slow
def test_a_fenced_producer_is_destroyed_without_damage_to_the_heap(kafka: str) -> None:
    child = [sys.executable, "-m", "tests.connectors.kafka.fencing", kafka]
    ended = subprocess.run(
        child, check=False, env={**os.environ, **heap_checks()}, capture_output=True, text=True, timeout=2 * PATIENCE_S
    )
    assert (ended.returncode, ended.stdout) == (0, "whole\n"), ended.stderr[-2000:]
