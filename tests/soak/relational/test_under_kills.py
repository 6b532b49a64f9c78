"""A few minutes of the relational soak over three brokers: each kind of harm once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.soak.schedule import SEVERAL
from tests.soak.soak import Config, Soak

KILLS, SEED = 5, 3


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(2400)
def test_every_update_of_relational_operators_is_explained(tmp_path: Path) -> None:
    config = Config(KILLS, SEED, tmp_path / "evidence", "relational", rate=300, partitions=2, brokers=3)
    soak = Soak(config, show=lambda progress: None)
    report = soak.go()
    assert report["found"] == [], f"seed {SEED}; evidence in {config.folder}"
    assert report["exact"]
    assert report["harms"].keys() == set(SEVERAL)
    assert report["records"] > report["sent"] > 3_000
