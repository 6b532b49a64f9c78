"""Finding a flow by the name that a command line gives: "app:flow", "folder/app.py:flow" or "package.app:flow"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from falkirk.blame import FAILURES, in_brief, is_users, raised_at
from falkirk.errors import ConfigError, DefinitionError, FalkirkError
from falkirk.stream.flow.flow import Flow
from falkirk.wording import counted

_MAKE_ONE = 'make one there, outside of functions and of if __name__ == "__main__": flow = fk.Flow("name")'

_under_way: list[str] = []
"""The targets that are being loaded at the moment."""


def loading() -> str:
    """The target that is being loaded, or ""."""
    return _under_way[-1] if _under_way else ""


@contextmanager
def _loading(target: str) -> Iterator[None]:
    _under_way.append(target)
    try:
        yield
    finally:
        _under_way.pop()


def load_flow(target: str) -> Flow:
    """The flow that `target` names: an object in a module, or a file of SQL. Without ":name", the module's only flow.
    Raises ConfigError, and DefinitionError if the module cannot be imported.

    >>> load_flow("nowhere:flow")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: there is no module or file 'nowhere'
      to do: name it as a module (app:flow) or a file (folder/app.py:flow), from the folder you are in
    """
    if target.endswith(".sql"):
        if not importlib.util.find_spec("sqlglot"):
            raise ConfigError(
                "SQL needs a library that is not installed: sqlglot", where=target, hint="pip install 'falkirk[sql]'"
            )
        from falkirk.stream.sql.file import flow_of

        with _loading(target):
            return flow_of(Path(target))
    place, _, name = target.partition(":")
    if place.endswith(".sql"):
        raise ConfigError(f"{place} is a file of SQL: all of it is one flow", hint=f"leave out :{name}")
    with _loading(target):
        module = _module(place)
    flows = {key: value for key, value in vars(module).items() if isinstance(value, Flow)}
    there = f"it has: {', '.join(sorted(flows))}" if flows else _MAKE_ONE
    if name:
        if name not in flows:
            other = f": that is a {type(vars(module)[name]).__name__}" if name in vars(module) else ""
            raise ConfigError(f"{place} has no flow {name!r}{other}", hint=there)
        return flows[name]
    if not flows:
        raise ConfigError(f"{place} has no flow", hint=there)
    if len(flows) != 1:
        raise ConfigError(
            f"{place} has {counted(len(flows), 'flow')}",
            hint=f"choose one: {', '.join(f'{place}:{key}' for key in sorted(flows))}",
        )
    return next(iter(flows.values()))


def file_of(place: str) -> Path:
    """The path of the file that a name means. If the file does not exist, the name means a module.

    >>> file_of("folder/app.py"), file_of("package.app")
    (PosixPath('folder/app.py'), PosixPath('package/app.py'))
    """
    return Path(place if place.endswith((".py", ".sql")) else place.replace(".", "/") + ".py")


def _module(place: str) -> ModuleType:
    path = file_of(place)
    try:
        if path.exists():
            return _from_file(path, place)
        sys.path.insert(0, str(Path.cwd()))
        try:
            with _words(place, f"python -c 'import {place}'"):
                return importlib.import_module(place)
        finally:
            sys.path.pop(0)
    except ModuleNotFoundError as error:
        if _is_of(place, error):
            before, _, last = place.rpartition(".")
            meant = f", as in {before}:{last}" if file_of(before or place).exists() else ""
            raise ConfigError(
                f"there is no module or file {place!r}",
                hint="name it as a module (app:flow) or a file (folder/app.py:flow), from the folder you are in"
                + meant,
            ) from None
        raise


def _is_of(place: str, error: ModuleNotFoundError) -> bool:
    """Whether the module itself is missing, or a package that it is in; and not one that it imports."""
    return f"{place}.".startswith(f"{error.name}.")


@contextmanager
def _words(place: str, command: str, todo: str = "") -> Iterator[None]:
    """Raises a DefinitionError for an error in a user's module. `todo` is what to do about it, if that is known. The error
    for a missing module does not change."""
    try:
        yield
    except FalkirkError as error:
        error.where = error.where or raised_at(error)
        raise
    except FAILURES as error:
        if isinstance(error, ModuleNotFoundError) and _is_of(place, error):
            raise
        if isinstance(error, TypeError) and "truth value of <class 'narwhals" in str(error):
            raise DefinitionError(
                f"{place} cannot be imported: an expression is neither true nor false, as and, or, not and if need it",
                where=raised_at(error),
                hint='write &, | and ~ with parentheses, (fk.col("a") > 1) & (fk.col("b") < 5); for if, fk.when(…).then(…)',
            ) from error
        hint = f"{todo or 'fix it'}; the whole trace is shown by {command}"
        if isinstance(error, ImportError) and "no known parent package" in str(error):
            name = ".".join(Path(place).with_suffix("").parts)
            hint = f"name it as a module of its package, from the folder that has the package: {name}:flow"
        raise DefinitionError(
            f"{place} cannot be imported: {in_brief(error)}", where=raised_at(error), hint=hint
        ) from error


class _AsItIs(SourceFileLoader):
    """Compiles the file each time. Python finds cached bytecode by the file's size and its time in seconds. Someone may edit
    a file and run it again within one second, so cached bytecode can be out of date."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path, place: str) -> ModuleType:
    """Import a file. Its folder is on the import path, as for a script. If `place` names a module of a package, the file is
    that module, and may import others of the package by relative names."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(place)
    installed = getattr(sys.modules.get(path.stem), "__file__", None)
    hides = installed is not None and not is_users(installed)
    with _words(str(path), f"python {path}", f"rename the file, which hides the module {path.stem}" if hides else ""):
        package = _package_of(place, path)
        if package is not None and (module := sys.modules.get(place)) is not known and module is not None:
            return module  # its package imports it
        name = place if package is not None else path.stem
        spec = importlib.util.spec_from_file_location(name, path, loader=_AsItIs(name, str(path)))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    if package is not None:
        setattr(package, path.stem, module)
    return module


def _package_of(place: str, path: Path) -> ModuleType | None:
    """The package of a module: "shop" of "shop.app", if the module's file is in it."""
    before = place.rpartition(".")[0]
    if place.endswith(".py") or not before:
        return None
    if (root := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, root)
    try:
        package = importlib.import_module(before)
    except ModuleNotFoundError as error:
        if _is_of(before, error):
            return None
        raise
    folders = [Path(folder).resolve() for folder in getattr(package, "__path__", ())]
    return package if path.parent.resolve() in folders else None
