"""Ctrl-C in commands that leave something behind."""

from __future__ import annotations

import pytest

from falkirk.cli.commands.requests import _follow


def test_who_no_longer_waits_for_a_request_is_told_what_becomes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _follow(look, 60.0, "the pause stays in force")
    assert capsys.readouterr().err == "\nnobody waits for it now: the pause stays in force\n"
