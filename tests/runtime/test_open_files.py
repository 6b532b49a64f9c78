"""How many files a process may open, and who asks for more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RAISES = "from falkirk.runtime.host.open_files import raise_file_limit; raise_file_limit()"
GATEWAY = """
import asyncio
import falkirk as fk
from falkirk.errors import ConfigError
from falkirk.runtime.gateway.gateway import serve_app
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.settings import Settings
flow = fk.Flow("shop")
flow.http("orders", value=fk.Json({"usd": int}))
try:
    asyncio.run(serve_app(flow.plan(), Settings("nobody:1", "."), GatewayOptions("203.0.113.1:1", public=True)))
except ConfigError as error:
    assert error.what.startswith("cannot listen"), error
"""


@pytest.mark.parametrize("does", [RAISES, GATEWAY], ids=["alone", "a gateway"])
def test_a_process_opens_as_many_files_as_it_may(does: str, tmp_path: Path) -> None:
    """In a process of its own: what it raises stays raised."""
    before = "import resource as r; hard = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (256, hard))"
    code = f"{before}\n{does}\nprint(r.getrlimit(r.RLIMIT_NOFILE)[0], hard)"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    soft, hard = map(int, said)
    assert soft == (min(hard, 65_536) if hard > 0 else 65_536)
