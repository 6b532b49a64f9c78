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
import {data} as data

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


@pytest.mark.parametrize("target", ["app.py:flow", "folder/app.py:flow", "pkg.app:flow", "pkg.app"])
def test_a_flow_is_loaded_from_its_parcel_in_another_folder(target: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "pkg", here / "folder", there):
        folder.mkdir(parents=True)
    place = target.partition(":")[0]
    for folder, data in ((here, "words"), (here / "folder", "words"), (here / "pkg", "pkg.words")):
        (folder / "words.py").write_text(DATA)
        (folder / "app.py").write_text(FLOW.format(data=data))
    (here / "pkg" / "__init__.py").write_text("")
    sent = subprocess.run([sys.executable, "-c", SEND, target], cwd=here, capture_output=True, check=True)
    got = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=there, input=sent.stdout, capture_output=True, check=False
    )
    assert got.returncode == 0, got.stderr.decode()
    files = ["app.py", "pkg/__init__.py", "pkg/words.py"] if place == "pkg.app" else ["app.py", "words.py"]
    assert got.stdout.decode().strip() == f"shop-a-b {files}"


def test_what_is_installed_stays_behind() -> None:
    files = parcel_of("json:flow").files
    assert not [f for f in files if f.startswith(("falkirk/", "polars/", "json/"))]
