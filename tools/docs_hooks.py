"""Hooks of mkdocs: what the site shows that is written elsewhere, in docstrings and in the options of commands.

A page says where: `<!-- generated: commands -->`. A code host shows such a page without that part.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from reference import PARTS

MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)\s#]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill in the generated parts; a link to a file of the project, outside the site, becomes the path of that file."""
    depth = page.file.src_uri.count("/")

    def named(link: re.Match[str]) -> str:
        if link[2].count("../") <= depth:
            return link[0]
        path = link[3] or "."
        return f"`{path}`" if link[1].strip("`") in (path, Path(path).name) else f"{link[1]} (`{path}`)"

    return LINK.sub(named, MARK.sub(lambda mark: PARTS[mark[1]](), markdown))
