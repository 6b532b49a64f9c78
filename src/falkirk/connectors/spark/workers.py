"""What runs in Spark's Python workers, where Falkirk may be missing and the user's module cannot be found.

Falkirk's own code     by name: it is installed, or an error says so
the user's functions   by value, with what they refer to in modules that are not installed: those are files of the
                       driver's machine
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyspark.cloudpickle import dumps, register_pickle_by_value, unregister_pickle_by_value
from pyspark.cloudpickle.cloudpickle import list_registry_pickle_by_value

from falkirk.blame import in_brief, is_users
from falkirk.errors import DefinitionError

MISSING = "pip install 'falkirk[spark]' there, ship an environment (spark.archives), or set PYSPARK_PYTHON"
"""What to do if a worker lacks a module."""


def importer() -> Callable[[str], Any]:
    """A function that imports a module of Falkirk by name, or says where Falkirk is missing.

    It is made here, so it is sent by value, not by name: it also arrives where Falkirk cannot be imported.
    """
    hint = MISSING

    def imported(name: str) -> Any:
        import importlib
        import logging
        import platform
        import sys

        # Logging is not set up there: each attempt to reach a broker that is away would be a line for the user.
        logging.getLogger("librdkafka").setLevel(logging.CRITICAL + 1)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{error.name} is not installed in a Python of Spark's\n"
                f"  where: {sys.executable} on {platform.node()}\n"
                f"  to do: {hint}"
            ) from None

    return imported


def shipped(thing: object) -> bytes:
    """A pickle that a worker can load, even with the user's code. Raises DefinitionError if there is none.

    >>> import pickle
    >>> double = lambda n: 2 * n
    >>> pickle.loads(shipped(double))(21)
    42
    """
    users = [module for name, module in list(sys.modules.items()) if _by_value(name, module)]
    for module in users:
        register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        data: bytes = dumps(thing)  # type: ignore[no-untyped-call]
        return data
    except Exception as error:
        raise DefinitionError(
            f"the flow cannot be sent to Spark's workers: {in_brief(error)}",
            hint="what its functions refer to must pickle: make clients, locks and open files inside of them",
        ) from error
    finally:
        for module in users:
            unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _by_value(name: str, module: object) -> bool:
    return (
        isinstance(module, ModuleType)
        and module.__name__ == name
        and name not in list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
        and is_users(getattr(module, "__file__", None) or "<none>")
    )
