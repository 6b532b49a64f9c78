"""An error in the text of an error."""

from __future__ import annotations

import pytest

from falkirk.connectors.spark.epochs.failures import failure
from falkirk.errors import ConfigError, FalkirkError, StateError

JAVA = "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: "
LOST = "Lost task 1.3 in stage 3.0 (TID 12) (host executor 1): "
CHAINED = """Traceback (most recent call last):
  File "a.py", line 7, in f
    g()
    ^^^
KeyError: 'k'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 8, in h
falkirk.errors.StateError: it is broken: very
  where: task a/1
  to do: fix it

\tat org.apache.spark.api.python
\tat java.base
"""
OTHER_PYTHON = """Traceback (most recent call last):
  File …
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.

\tat org.apache.spark.api.python
"""


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (JAVA + LOST + CHAINED, StateError, "it is broken: very\n  where: task a/1\n  to do: fix it"),
        (
            CHAINED.replace("falkirk.errors.StateError", "ModuleNotFoundError"),
            ConfigError,
            "it is broken: very\n  where: task a/1\n  to do: fix it",
        ),
        (
            JAVA + LOST + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat x",
            FalkirkError,
            "Spark gave up the epoch: Python worker exited unexpectedly (crashed)",
        ),
        (
            LOST + CHAINED.replace("\n\n\tat", "\n SQLSTATE: 38000\n\tat", 1),
            StateError,
            "it is broken: very\n  where: task a/1\n  to do: fix it",
        ),
        (
            JAVA + "ExecutorLostFailure (executor 1 exited)\n",
            FalkirkError,
            "the epoch: ExecutorLostFailure (executor 1",
        ),
        (CHAINED.partition("\n\nThe above")[0], FalkirkError, "Spark gave up the epoch: KeyError: 'k'\n"),
        (
            "Traceback (most recent call last):\n  File …\nModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE: 38000",
            ConfigError,
            "No module named 'pyarrow'\n  where: a Python of Spark's workers\n  to do: pip install",
        ),
        (
            JAVA + LOST + OTHER_PYTHON,
            ConfigError,
            "minor versions\n  where: a Python of Spark's workers\n  to do: let PYSPARK_PYTHON",
        ),
        ("Connection refused", FalkirkError, "Spark gave up the epoch: Connection refused\n"),
    ],
)
def test_what_a_task_said_is_found_in_what_spark_says(text: str, kind: type[FalkirkError], said: str) -> None:
    error = failure(Exception(text), "the epoch")
    assert type(error) is kind
    assert said in str(error)
    assert "SQLSTATE" not in str(error)
