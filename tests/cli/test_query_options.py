"""What `--query` and its token are refused for, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from falkirk.cli.main import falkirk
from falkirk.errors import ConfigError

RUN = ["run", "app:flow", "--brokers", "nobody:1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--query", "0.0.0.0:9200"], "without a token, anybody who reaches"),
        (["--query", "9200", "--query-token-file", "missing"], "the token cannot be read"),
        (["--query-token-file", "missing"], "there is a token, but no address"),
        (["--query", "here"], "'here' is not a valid address"),
        (["--query", "9200", "--on", "spark"], "workers on Spark answer no questions"),
    ],
)
def test_what_is_wrong_is_told_at_once(options: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        falkirk([*RUN, "--state-dir", str(tmp_path), *options], standalone_mode=False)


def test_a_settings_file_may_turn_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "falkirk.toml").write_text('brokers = "b:1"\nquery = "0.0.0.0:9200"\nquery-token-file = "token"\n')
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr("falkirk.cli.commands.run._run", lambda target, settings, *_, **__: found.append(settings))
    falkirk(["run", "app:flow"], standalone_mode=False)
    (settings,) = found
    assert settings.query == "0.0.0.0:9200"
    assert Path(settings.query_token_file) == tmp_path / "token"  # workers may have another working folder
