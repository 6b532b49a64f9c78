"""What went wrong in a task, in one line.

A task's error arrives as text: Python's trace within Java's. Python's trace ends with the error itself, and a
FalkirkError's text says in fixed words what happened, where, and what to do.
"""

from __future__ import annotations

import re

from falkirk import errors
from falkirk.connectors.spark.workers import MISSING
from falkirk.errors import ConfigError, FalkirkError

WORKERS = "a Python of Spark's workers"
OTHER_PYTHON = "[PYTHON_VERSION_MISMATCH]"
SAME_PYTHON = (
    "let PYSPARK_PYTHON name a Python of the driver's version on each executor, or ship an environment (spark.archives)"
)

_TRACE = "Traceback (most recent call last):\n"
_AFTER = ("\t", " SQLSTATE: ")
_SAID = re.compile(
    r"(?P<kind>[\w.]+): (?P<what>.*?)(?:\n  where: (?P<where>[^\n]*))?(?:\n  to do: (?P<hint>[^\n]*))?\s*\Z", re.DOTALL
)
_LOST = re.compile(r"most recent failure: (?:Lost task [^\n]*?\): )?(?:[\w.]+(?:Exception|Error): )?(?P<what>[^\n]*)")


def failure(error: Exception, what: str) -> FalkirkError:
    """The FalkirkError that a task raised, if Spark's error has one in it; else one that reports Spark's.

    `what` is the job's purpose.

    >>> text = "Job aborted: Traceback (most recent call last):\\n  File …\\nfalkirk.errors.SourceError: gone\\n\\n\\tat …"
    >>> failure(Exception(text), "epoch 3 of app.totals")
    SourceError('gone')
    >>> print(failure(Exception("Job 7 cancelled"), "epoch 3 of app.totals"))
    Spark gave up epoch 3 of app.totals: Job 7 cancelled
      to do: what Spark has logged says more; run again, it goes on where it stands
    """
    text = str(error)
    said = _SAID.match(_raised(text))
    if said is not None:
        kind, happened, where, hint = (said[name] or "" for name in ("kind", "what", "where", "hint"))
        kind = kind.rpartition(".")[2]
        if kind == ModuleNotFoundError.__name__:
            return ConfigError(happened, where=where or WORKERS, hint=hint or MISSING)
        if happened.startswith(OTHER_PYTHON):
            what = happened.removeprefix(OTHER_PYTHON).strip().splitlines()[0].rstrip(".")
            return ConfigError(what, where=WORKERS, hint=SAME_PYTHON)
        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, FalkirkError):
            return known(happened, where=where, hint=hint)
        line = f"{kind}: {happened.splitlines()[0]}"
    else:
        lost = _LOST.search(text)
        line = lost["what"] if lost is not None else text.strip().splitlines()[0]
    return FalkirkError(
        f"Spark gave up {what}: {line}", hint="what Spark has logged says more; run again, it goes on where it stands"
    )


def _raised(text: str) -> str:
    """The last Python error in the text: what comes after a trace's indented lines, up to Java's."""
    _, found, trace = text.rpartition(_TRACE)
    lines = trace.splitlines() if found else []
    while lines and (not lines[0] or lines[0][0].isspace()):
        del lines[0]
    end = next((i for i, line in enumerate(lines) if not line.strip() or line.startswith(_AFTER)), len(lines))
    return "\n".join(lines[:end])
