#!/usr/bin/env python3
"""Updates the command output in README.md by running the commands.

    python scripts/fill_readme.py

To be run when a test says that README.md is out of date; look at the difference before committing it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "tests/project")]

from readme_blocks import README, outputs  # noqa: E402


def main() -> None:
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "steps").mkdir()
        for block, printed in reversed(outputs(text, Path(scratch))):  # all of them, so that they are of one session
            shown = re.sub(re.escape(scratch) + r"/(?:steps|demo)", "/home/me", printed).strip()
            text = text[: block.start] + shown + "\n" + text[block.end :]
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
