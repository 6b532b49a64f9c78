"""Apps by their names: what is said of one that has no layout."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout import app_lookup
from falkirk.runtime.layout.layout import AppRecord


def test_an_app_whose_topics_exist_and_that_never_ran_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics: Any = None
    monkeypatch.setattr(app_lookup, "known_app", lambda *_: AppRecord())
    with pytest.raises(ConfigError, match="app 'fresh' has not run yet") as said:
        app_lookup.layout_of("fresh", Settings("a:1", ""), topics)
    assert "falkirk run" in said.value.hint
