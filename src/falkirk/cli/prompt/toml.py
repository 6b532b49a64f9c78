"""Tables for the prompt from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falkirk.errors import ConfigError


def read_tables(path: Path) -> Mapping[str, Any]:
    """The tables of the file: [NAME], with columns and options. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {error}", where="--tables", hint='[bids], and columns = {price = "bigint"}'
        ) from None
