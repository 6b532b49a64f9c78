"""Complete epochs as DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.runtime.batch.stand import PARTITIONS, Stand

from falkirk.runtime.messages.epochs import batch_part

pytestmark = pytest.mark.kafka


def load(spark: SparkSession, stand: Stand, epoch: object, stage: str = "totals") -> DataFrame:
    options = {
        "brokers": stand.settings.brokers,
        "topic": stand.sink,
        "app": stand.app_name,
        "stage": stage,
        "epoch": epoch,
    }
    return spark.read.format("falkirk").options(**{k: str(v) for k, v in options.items()}).load()


@pytest.mark.slow
def test_an_epoch_is_read_whole_or_not_at_all(
    spark: SparkSession, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path)
    for count in (10, 4):
        stand.append(count)
        stand.drive()

    def values(epoch: object) -> list[bytes]:
        return [bytes(row.value) for row in load(spark, stand, epoch).sort("partition", "offset").collect()]

    first = load(spark, stand, 0)
    assert values(0) == [b"10 0", b"10 1", b"10 2"] * PARTITIONS
    assert values("latest") == values(1) == [b"14 0", b"14 1", b"14 2"] * PARTITIONS

    with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
        part.ask("open")

    def die(i: int) -> None:
        if i == 2:
            raise RuntimeError

    stand.compute.at_slice = die
    driver = stand.driver(until_end=False)
    with pytest.raises(RuntimeError):
        driver.drive(lambda: False)
    driver.close()
    assert len(stand.values()) == 12 + 2, "an epoch is open, and partly published"
    assert values("latest") == values(1), "which readers of complete epochs do not see"
    assert first.count() == 3 * PARTITIONS, "what was loaded stays what it was"
    with pytest.raises(Exception, match="epoch 2 is not complete"):
        load(spark, stand, 2)
    with pytest.raises(Exception, match=r"no app of that name has run here with such a batch part"):
        load(spark, stand, 0, stage="total")
