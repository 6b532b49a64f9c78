"""A flow's code goes where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from falkirk.runtime.spark_workers.parcel import parcel_of

DATA = "WORDS = ('a', 'b')\n"
FLOW = """
from __future__ import annotations
import falkirk as fk
{data}

flow = fk.Flow("shop-" + "-".join(data.WORDS))
flow.source("sales", value=fk.Text()).sink("copies", value=fk.Text())
"""
SEND = """
import pickle, sys
from falkirk.runtime.spark_workers.parcel import parcel_of
from falkirk.stream.flow.load import load_flow
load_flow(sys.argv[1])
sys.stdout.buffer.write(pickle.dumps(parcel_of(sys.argv[1])))
"""
RECEIVE = """
import pickle, sys
from falkirk.stream.flow.load import load_flow
parcel = pickle.loads(sys.stdin.buffer.read())
with parcel.unpacked() as (folder, target):
    sys.path.insert(0, str(folder))
    print(load_flow(target).name, sorted(parcel.files))
"""


@pytest.mark.parametrize("target", ["app.py:flow", "folder/app.py:flow", "pkg.app:flow", "pkg.app", "relative.app"])
def test_a_flow_is_loaded_from_its_parcel_in_another_folder(target: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("pkg", "folder", "relative"):
        (here / name).mkdir(parents=True)
    there.mkdir()
    place = target.partition(":")[0]
    lines = {"pkg": "import pkg.words as data", "relative": "from . import words as data"}
    for folder in (here, here / "folder", here / "pkg", here / "relative"):
        data = lines.get(folder.name, "import words as data")
        (folder / "words.py").write_text(DATA)
        (folder / "app.py").write_text(FLOW.format(data=data))
    for name in ("pkg", "relative"):
        (here / name / "__init__.py").write_text("")
    sent = subprocess.run([sys.executable, "-c", SEND, target], cwd=here, capture_output=True, check=True)
    got = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=there, input=sent.stdout, capture_output=True, check=False
    )
    assert got.returncode == 0, got.stderr.decode()
    package = place.removesuffix(".app") if place.endswith(".app") else ""
    files = [f"{package}/{name}.py" for name in ("__init__", "app", "words")] if package else ["app.py", "words.py"]
    assert got.stdout.decode().strip() == f"shop-a-b {files}"


def test_what_is_installed_stays_behind() -> None:
    files = parcel_of("json:flow").files
    assert not [f for f in files if f.startswith(("falkirk/", "polars/", "json/"))]
