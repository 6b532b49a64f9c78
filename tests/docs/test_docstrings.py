"""Whatever a user can call has a docstring with an example. pytest runs the examples: see `testpaths` in pyproject.toml."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import falkirk as fk
from falkirk.stream.flow.joining.lookups import Table
from falkirk.stream.flow.keyed import Grouped, Keyed
from falkirk.testing import strategies

WITHOUT = {
    "Flow.run": "needs a broker",
    "Flow.dev": "starts a broker",
    "Registry.check": "needs a registry",
    "Registry.register": "needs a registry",
    "Registry.registered": "needs a registry",
    "Registry.schemas": "needs a registry",
}


def offered() -> Iterator[tuple[str, Any]]:
    """The public classes and functions by name, and the methods of the classes."""
    named = {name: getattr(fk, name) for name in dir(fk)} | {
        f"testing.{n}": getattr(fk.testing, n) for n in dir(fk.testing)
    }
    named |= {f"strategies.{name}": getattr(strategies, name) for name in ("rows", "topics")}
    named |= {kind.__name__: kind for kind in (Grouped, Keyed, Table)}
    for name, each in named.items():
        if not getattr(each, "__module__", "").startswith("falkirk"):
            continue  # a module, or Narwhals', which has examples of its own
        yield name, each
        for method in dir(each) if isinstance(each, type) else ():
            found = inspect.getattr_static(each, method)
            if not method.startswith("_") and inspect.isfunction(found) and found.__module__.startswith("falkirk"):
                yield f"{name}.{method}", found


OFFERED = dict(offered())


def test_the_methods_of_the_face_are_found() -> None:
    assert {
        "Flow",
        "Flow.source",
        "Stream.map",
        "Stream.sink",
        "Grouped.agg",
        "len",
        "testing.App.send",
    } <= OFFERED.keys()


@pytest.mark.parametrize("name", sorted(OFFERED.keys() - WITHOUT.keys()))
def test_what_is_offered_has_an_example(name: str) -> None:
    assert "\n>>> " in inspect.cleandoc(OFFERED[name].__doc__ or ""), f"the docstring of {name} has no example"


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_what_has_no_example_has_a_docstring_and_cannot_have_one(name: str) -> None:
    assert OFFERED[name].__doc__
    assert ">>>" not in OFFERED[name].__doc__
