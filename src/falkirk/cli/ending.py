"""How a process ends that is one worker, one driver or one gateway."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from falkirk.cli.main import tell
from falkirk.errors import FalkirkError
from falkirk.runtime.host.logs import print_trace
from falkirk.runtime.messages.protocol import BUG


@contextmanager
def last_act() -> Iterator[None]:
    """What this process does last. Then it ends: with exit code 0; or with an error's, which is printed first.

    It ends at once. At the interpreter's usual end, a thread that waits for the cluster would hold it up, and so would
    Spark's threads.
    """
    code = 0
    try:
        yield
    except FalkirkError as error:
        tell(error)
        code = error.exit_code
    except Exception:  # noqa: BLE001  # whatever it is, the process ends with it
        print_trace()
        code = BUG
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
