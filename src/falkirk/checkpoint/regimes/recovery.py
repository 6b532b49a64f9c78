"""What each regime answers about what survives a crash."""

from __future__ import annotations

from typing import ClassVar


class Recovery:
    """How a part of a flow continues after a crash."""

    name: ClassVar[str]
    """As layouts record it, and as people read it. A stage can change between regimes with the same recovery."""
    in_epochs: ClassVar[bool] = False
    """Whether it runs in epochs, on the sources alone, and not in steps."""
    logs_changes: ClassVar[bool] = False
    """Whether each step writes its state changes to a changelog. Other hosts, later versions of the flow and people can then
    read the state there, and migrations can change it."""
    replays: ClassVar[bool] = False
    """Whether recorded steps run again. Their outputs must then be the same as the published ones."""
    rereads: ClassVar[bool] = False
    """Whether a division may be read again. Its records must then be the same as before."""
