"""The answers that the page shows are those that its flow gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.runtime.query.stand import Workers, answer, flights

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "query-state.md"
SENT = [("UA", "EWR", "SFO", 4), ("UA", "EWR", "SFO", 12), ("UA", "EWR", "LAX", 11), ("AA", "JFK", "LAX", 0)]
OF_A_RUN = ("task", "step", "time")


def timeless(found: Any) -> Any:
    """Without what differs from run to run; and of tasks, only those with rows."""
    if isinstance(found, dict):
        return {name: timeless(value) for name, value in found.items() if name not in OF_A_RUN}
    if isinstance(found, list):
        return [timeless(value) for value in found if not (isinstance(value, dict) and value.get("rows") == [])]
    return found


def test_the_answers_of_the_page_are_those_of_its_flow(tmp_path: Path) -> None:
    text = PAGE.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    workers = Workers(tmp_path, namespace["flow"], partitions=1)
    flights(workers.memory, SENT)
    workers.commit()
    shown = re.findall(r"^\$ curl .*?http://10\.0\.0\.5:9200(/[^\s']*)'?\n(\{.*\})$", text, re.MULTILINE)
    assert len(shown) == 5
    for target, due in shown:
        _, body = answer(workers.routers[0], target)
        assert timeless(body) == timeless(json.loads(due)), target
        assert set(body) == set(json.loads(due)), target
    workers.close()
