"""``python -m archec``: the same as the ``archec`` command."""

from __future__ import annotations

from archec.cli.main import main

if __name__ == "__main__":
    main()
