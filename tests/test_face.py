"""What `import falkirk as fk` offers is a promise: a name that goes, or comes by mistake, is seen here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.typed import check

import falkirk

NAMES = """
Aggregate Avro Batch Binary Boolean Date Datetime DatetimeMicros DeadLetter Decimal EagerCheckpoint FalkirkError
Float32 Float32BE Float64 Float64BE Flow From Int16 Int16BE Int32 Int32BE Int64 Int64BE Int8 Json Key KeyContext
LazyCheckpoint List Once Pattern Process Protobuf Provenance Raw RecoverWithin Registry Skip Stop Stream String Struct Text
Timer UInt16 UInt32 UInt64 UInt8 all all_horizontal any any_horizontal approx_n_unique approx_quantile coalesce col collect
concat_str count_window dense_rank exclude first hopping lag last lead len lit max max_horizontal mean mean_horizontal min
min_horizontal n_unique provenance rank row_number session std sum sum_horizontal testing tumbling var when
"""
OFFERED = NAMES.split()
OFFERED_FOR_TESTS = ["App", "Record", "Sink", "run", "strategies"]


def test_the_public_face_is_what_is_promised() -> None:
    assert dir(falkirk) == OFFERED
    assert dir(falkirk.testing) == OFFERED_FOR_TESTS


def test_every_name_of_the_face_is_there() -> None:
    assert [name for name in OFFERED if not hasattr(falkirk, name)] == []
    assert [name for name in OFFERED_FOR_TESTS if not hasattr(falkirk.testing, name)] == []


def test_a_star_import_gives_the_face_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from falkirk import *", names)
    assert sorted(names.keys() - {"__builtins__"}) == OFFERED


def test_what_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="falkirk has no 'nope'"):
        falkirk.nope  # noqa: B018
    with pytest.raises(AttributeError, match=r"^falkirk has no '_sum'$"):
        falkirk._sum  # noqa: B018
    with pytest.raises(AttributeError, match=r"falkirk\.testing has no 'nope'"):
        falkirk.testing.nope  # noqa: B018


def test_type_checkers_accept_every_name_of_the_face(tmp_path: Path) -> None:
    names = [f"fk.{name}" for name in OFFERED] + [f"fk.testing.{name}" for name in OFFERED_FOR_TESTS]
    check("\n".join(["import falkirk as fk", "from falkirk import *", "Flow", "Stream", *names]), tmp_path)


def test_type_checkers_refuse_what_the_face_does_not_offer(tmp_path: Path) -> None:
    program = """
import falkirk as fk
from falkirk import Flowing  # E: attr-defined

fk.EagerChekpoint()  # E: attr-defined
fk.importlib  # E: attr-defined
fk.TYPE_CHECKING  # E: attr-defined
fk.testing.ran  # E: attr-defined
fk.testing.importlib  # E: attr-defined
"""
    check(program, tmp_path)


def test_importing_falkirk_imports_nothing_heavy_until_a_name_is_used() -> None:
    program = """
import sys, falkirk
dir(falkirk)
heavy = {"polars", "narwhals", "confluent_kafka", "falkirk._face", "falkirk.testing"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
falkirk.Flow
assert heavy & sys.modules.keys() == {"polars", "narwhals", "falkirk._face"}, heavy & sys.modules.keys()
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
