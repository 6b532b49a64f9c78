"""A flow's code, sent to hosts that do not have it: its modules, as files.

Only installed code is left out: it must be installed there too. A parcel does not have what a function imports when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from falkirk.blame import is_users
from falkirk.stream.flow.load import file_of


@dataclass(frozen=True, slots=True)
class Parcel:
    """A flow's code."""

    target: str
    """The flow's name, as seen from a folder with the files."""
    files: Mapping[str, bytes]
    """By path within the folder."""

    @contextmanager
    def unpacked(self) -> Iterator[tuple[Path, str]]:
        """A folder with the files, for as long as they are needed, and the flow's name for importing from it."""
        with TemporaryDirectory(prefix="falkirk-flow-") as folder:
            for name, data in self.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            is_file = self.target.partition(":")[0].endswith((".py", ".sql"))
            yield Path(folder), str(Path(folder, self.target)) if is_file else self.target


def parcel_of(target: str) -> Parcel:
    """The code of a flow that `load_flow(target)` has loaded in this process."""
    place, colon, name = target.partition(":")
    files: dict[str, bytes] = {}
    in_package = "." in place and place in sys.modules  # then it is found as the others are, below
    if (file := file_of(place)).exists() and not in_package:
        files[file.name] = file.read_bytes()
        place = file.name
    for module, loaded in list(sys.modules.items()):
        origin = getattr(loaded, "__file__", None)
        if module != "__main__" and origin is not None and is_users(origin) and Path(origin).is_file():
            files.setdefault(_path(module, Path(origin)), Path(origin).read_bytes())
    return Parcel(f"{place}{colon}{name}", files)


def _path(name: str, file: Path) -> str:
    """Where Python looks for a module of that name.

    >>> _path("shop.flows", Path("/src/shop/flows.py")), _path("shop", Path("/src/shop/__init__.py"))
    ('shop/flows.py', 'shop/__init__.py')
    """
    parts = name.split(".")
    return str(PurePosixPath(*(parts if file.stem == "__init__" else parts[:-1]), file.name))
