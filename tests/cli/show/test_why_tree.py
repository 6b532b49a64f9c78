"""The tree of `falkirk why`."""

from __future__ import annotations

import io
from typing import Literal

from rich.console import Console
from rich.tree import Tree

from falkirk.cli.commands.why import _grow
from falkirk.runtime.inspect.lineage_step import LineageNode, Read


def read(topic: str, kind: Literal["source", "edge"], *by: LineageNode) -> Read:
    return Read(topic=topic, partition=0, start=0, end=1, kind=kind, by=list(by))


def test_a_step_that_two_inputs_lead_to_is_shown_once() -> None:
    before = LineageNode(task="a/0", step=3, clock=1, reads=[read("bids", "source")])
    node = LineageNode(task="b/0", step=5, clock=2, reads=[read("left", "edge", before), read("right", "edge", before)])
    tree = Tree("record")
    _grow(tree, node, set())
    written = io.StringIO()
    Console(file=written, width=120).print(tree)
    shown = written.getvalue()
    assert shown.count("step 3 of task a/0") == 2
    assert shown.count("step 3 of task a/0, as above") == 1
    assert shown.count("bids") == 1
