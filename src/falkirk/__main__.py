"""`python -m falkirk` is `falkirk`."""

from __future__ import annotations

from falkirk.cli.main import main

if __name__ == "__main__":
    main()
