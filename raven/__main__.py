"""``python -m raven``."""

from __future__ import annotations

from raven.cli.app import main

if __name__ == "__main__":
    main()
