"""What the peers need besides Falkirk's own environment: one more Python environment, and Kafka Streams and Flink compiled.

Both live in the user's cache and are made once. What cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

from harness.processes import BENCH

REQUIREMENTS = {"quixstreams": "quixstreams==3.28.1", "matplotlib": "matplotlib==3.11.2", "pyspark": "pyspark==4.0.0"}


class Missing(Exception):
    """Why something cannot be had."""


def python_with(package: str) -> Path:
    """A Python that has one of REQUIREMENTS, in an environment of the bench's own. Raises Missing."""
    folder = _cache() / f"python{sys.version_info.major}.{sys.version_info.minor}"
    python, mark = folder / "bin" / "python", folder / f"{REQUIREMENTS[package]}.installed"
    if not mark.exists():
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENTS[package]])
        mark.touch()
    return python


def packages(package: str) -> Path:
    """A folder for PYTHONPATH with one of REQUIREMENTS, which then comes before what is installed. Raises Missing."""
    requirement = REQUIREMENTS[package]
    folder = _cache() / requirement
    if not (folder / "installed").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--upgrade", "--target", str(folder), requirement])
        (folder / "installed").touch()
    return folder


def class_path(peer: str) -> str:
    """The class path of a peer in Java, a folder of peers/. Raises Missing."""
    source = BENCH / "peers" / peer
    files = sorted(path for path in source.rglob("*") if path.suffix in (".xml", ".java"))
    word = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    folder = _cache() / f"{peer}-{word}"
    if not (folder / "built").exists():
        if shutil.which("mvn") is None:
            raise Missing("there is no mvn to build it with")
        maven = ["mvn", "-q", "-B", "-f", str(source / "pom.xml"), f"-Dout={folder}"]
        _run([*maven, "compile", "dependency:copy-dependencies"])
        (folder / "built").touch()
    return f"{folder / 'classes'}:{folder / 'jars'}/*"


def _cache() -> Path:
    folder = platformdirs.user_cache_path("falkirk") / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Missing(f"{' '.join(command[:4])} failed: {lines[0] if lines else done.returncode}")
