"""A few minutes of the soak over three brokers: each is killed or handed over in turn, and workers with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.soak.schedule import SEVERAL
from tests.soak.soak import Config, Soak

KILLS, SEED = 8, 3


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_leaders_that_die_and_move_change_nothing(tmp_path: Path) -> None:
    config = Config(KILLS, SEED, tmp_path / "evidence", rate=300, partitions=2, brokers=3)
    soak = Soak(config, show=lambda progress: None)
    report = soak.go()
    assert report["found"] == [], f"seed {SEED}; evidence in {config.folder}"
    assert report["exact"]
    assert report["harms"].keys() == set(SEVERAL)
