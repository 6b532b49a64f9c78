"""Apps by their names: what is said of one that has no layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout import app_lookup, deleting
from falkirk.runtime.layout.layout import AppRecord


def test_an_app_whose_topics_exist_and_that_never_ran_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics: Any = None
    monkeypatch.setattr(app_lookup, "known_app", lambda *_: AppRecord())
    with pytest.raises(ConfigError, match="app 'fresh' has not run yet") as said:
        app_lookup.layout_of("fresh", Settings("a:1", ""), topics)
    assert "falkirk run" in said.value.hint


class NoApps:
    """A cluster without any."""

    def check_reachable(self, timeout: float) -> None:
        """It answers."""

    def describe(self, names: list[str]) -> dict[str, Any]:
        return {}

    def names(self) -> list[str]:
        return []


@pytest.mark.parametrize("name", ["", ".", "..", "shop/worker-0"])
def test_what_cannot_be_the_name_of_an_app_never_stands_for_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "state" / "shop" / "worker-0").mkdir(parents=True)
    topics: Any = NoApps()
    settings = Settings("a:1", str(tmp_path / "state"))
    for look in (deleting.app_resources, app_lookup.known_app):
        with pytest.raises(ConfigError, match="is not a valid name of an app"):
            look(name, settings, topics)
    assert deleting.app_resources("shop", settings, topics).folder == tmp_path / "state" / "shop"


@pytest.mark.parametrize("inside", ["shop/a-version", "data/bids-0"])
def test_a_folder_that_is_no_apps_is_not_deleted_as_one(tmp_path: Path, inside: str) -> None:
    (tmp_path / "checkpoints" / inside).mkdir(parents=True)
    topics: Any = NoApps()
    with pytest.raises(ConfigError, match="there is no app 'checkpoints'"):
        deleting.app_resources("checkpoints", Settings("a:1", str(tmp_path)), topics)
