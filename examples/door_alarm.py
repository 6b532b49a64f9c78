"""An alarm for each door that stays open too long, and the all-clear when it is shut: a state machine with timers.

         open: set the timer              the timer is due: "left open"
SHUT ──────────────────────────▶ OPEN ──────────────────────────────────▶ ALARM
 ▲ ▲       shut: drop the timer   │                                         │
 │ └──────────────────────────────┘           shut: "shut again"            │
 └──────────────────────────────────────────────────────────────────────────┘

falkirk dev examples/door_alarm.py:flow                                   # prints the address of its Kafka
printf 'cellar\t{"door":"cellar","open":true}\n' | python examples/topic.py write doors --brokers ADDRESS
python examples/topic.py read door-alarms --brokers ADDRESS               # three seconds later: "left open"
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import falkirk as fk

TOO_LONG = timedelta(seconds=3)


class DoorAlarm(fk.Process):
    """No row of state: the door is shut. The timer outlives crashes as the state does, for it is part of it."""

    state = {"alarm": bool}
    returns = {"door": str, "event": str}

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        """The door was opened or shut."""
        before = key.get()
        if row["open"] and before is None:
            key.put({"alarm": False})
            key.set_timer(TOO_LONG)
        elif not row["open"] and before is not None:
            key.delete()
            key.delete_timer()
            if before["alarm"]:
                yield {"door": row["door"], "event": "shut again"}

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        """It has been open for too long."""
        key.put({"alarm": True})
        yield {"door": key.key[0], "event": "left open"}


flow = fk.Flow("door-alarm")
doors = flow.source("doors", key="door", value=fk.Json({"door": fk.String, "open": fk.Boolean}))
doors.key_by("door").process(DoorAlarm(), id="alarm").sink("door-alarms", key="door", value=fk.Json())
