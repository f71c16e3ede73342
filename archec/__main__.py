"""``archec`` and ``python -m archec``: what takes long to get ready is begun, then the command line is read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from archec.errors import ArchecError, Exit

__all__ = ["main"]

_FETCHES_NOTHING = frozenset({"--no-fetch", "--dry-run", "-h", "--help"})


def main() -> NoReturn:
    """The console script.

    A run that fetches gets its first worker process before anything else: both need a tenth of a second until they
    can work, and do that side by side.
    """
    try:
        from archec.cli.streams import guard
        from archec.fetch.spares import Spares

        guard()  # before a socket is opened: it might get the number of a closed stdout
        with Spares(0) as spares:
            if _fetches(sys.argv[1:]):
                with suppress(ArchecError):  # the run tries again, and says so
                    spares.fill(1)
            from archec.cli.main import main as command_line

            command_line(spares)
    except KeyboardInterrupt:  # before the command line can tell of it, or after it has
        sys.exit(Exit.INTERRUPTED)


def _fetches(arguments: Sequence[str]) -> bool:
    """Whether this looks like a run that fetches; nothing comes of a mistake but a process that soon leaves."""
    return arguments[:1] == ["gather"] and _FETCHES_NOTHING.isdisjoint(arguments)


if __name__ == "__main__":
    main()
