"""``archec`` and ``python -m archec``."""

from __future__ import annotations

import sys
from typing import NoReturn

from archec.errors import Exit


def main() -> NoReturn:
    """Entry point of the console script. Imports the command line here, so that Ctrl-C during the import prints no
    traceback."""
    try:
        from archec.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    main()
