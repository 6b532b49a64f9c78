"""`falkirk`, and `python -m falkirk`, which is the same.

This file and what it imports at its top are read before signals are answered: so they are small.
"""

from __future__ import annotations

import os
import sys

from falkirk.cli.stopping import CODES, came_of_stop, listen


def main() -> None:
    """Run the command line. A command that works until it is told to stop may be told while it is still imported."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command not in CODES:
        _command_line()
        return
    try:
        listen()
        _command_line()
    except BaseException as error:
        if not came_of_stop(error):
            raise
        from falkirk.runtime.host.logs import say

        say(f"falkirk {command}: told to stop before it began")
        sys.stdout.flush()
        os._exit(CODES[command])  # a thread that waits for the cluster would hold up the interpreter's end


def _command_line() -> None:
    from falkirk.cli.main import main

    main()


if __name__ == "__main__":
    main()
