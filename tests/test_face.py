"""What `import falkirk as fk` offers is a promise: a name that goes, or comes by mistake, is seen here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import falkirk

OFFERED = """
Aggregate Avro Batch Binary Boolean Date Datetime DatetimeMicros DeadLetter Decimal EagerCheckpoint FalkirkError
Float32 Float32BE Float64 Float64BE Flow From Int16 Int16BE Int32 Int32BE Int64 Int64BE Int8 Json Key KeyContext
LazyCheckpoint List Once Pattern Process Protobuf Provenance Raw Registry Skip Stop Stream String Struct Text Timer
UInt16 UInt32 UInt64 UInt8 all all_horizontal any_horizontal coalesce col concat_str exclude len lit max max_horizontal mean
mean_horizontal min min_horizontal provenance sum sum_horizontal testing when
"""


def test_the_public_face_is_what_is_promised() -> None:
    assert dir(falkirk) == OFFERED.split()


def test_what_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="falkirk has no 'nope'"):
        falkirk.nope  # noqa: B018


def test_the_core_does_without_spark() -> None:
    program = "import sys, falkirk; falkirk.Flow; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
