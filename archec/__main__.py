"""``archec`` and ``python -m archec``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Entry point of the console script. Everything that is not loaded with Python is imported here, so that Ctrl-C
    during the import prints no traceback.

    File names are UTF-8 in any locale, as in Python from 3.15 (PEP 686): one data set must not give two answers.
    """
    if sys.getfilesystemencoding() != "utf-8":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, words, {**os.environ, "PYTHONUTF8": "1"})
    try:
        from archec.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)  # Exit.INTERRUPTED, which may not be imported yet
    finally:
        gc.freeze()  # nothing is left to collect, and looking for it takes longer than a small command
        import signal

        if callable(signal.getsignal(signal.SIGINT)):  # nothing is left to interrupt
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
