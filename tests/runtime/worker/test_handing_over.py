"""A worker hands a task over whose steps the broker refuses: nothing of it is left behind to be committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.bad_input.stand import Stand

from falkirk.checkpoint import transaction
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted
from falkirk.checkpoint.tasks import Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.connectors.kafka.transactions.log import KafkaLog

pytestmark = pytest.mark.kafka


def test_a_first_step_that_was_aborted_goes_with_its_task(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path)
    stand.topic()
    with stand.worker(stand.flow()) as worker:
        worker.join()
        commit, commit_steps, refused, of_steps = KafkaLog.commit, transaction.commit_steps, list[int](), list[int]()

        async def committing(*of: Any) -> list[Fate]:
            """These transactions are not to succeed; those of names and releases are."""
            of_steps.append(1)
            try:
                return await commit_steps(*of)
            finally:
                of_steps.pop()

        async def refusing(self: KafkaLog) -> Mapping[TopicPartition, Offset]:
            if not of_steps:
                return await commit(self)
            refused.append(1)
            await self.abort()
            raise Aborted("refused")

        monkeypatch.setattr(transaction, "commit_steps", committing)
        monkeypatch.setattr(KafkaLog, "commit", refusing)
        while not refused or len(worker.tasks) < 2:
            worker.turn()
        leaves, stays = worker.tasks[0].owned, worker.tasks[1].owned
        assert not leaves.last
        worker._on_revoked([0])
        assert leaves.phase is Phase.IDLE
        assert leaves.store is None
        assert set(worker.tasks) == {1}
        # The next commit would ask an idle task for its store.
        [domain] = worker.domains.values()
        assert leaves.task.id not in domain.core.pipeline.staged
        assert stays.task.id in domain.core.pipeline.staged
        domain.performer.perform()
        domain.performer.wait()
        monkeypatch.undo()
        while stays.last is None:
            worker.turn()
