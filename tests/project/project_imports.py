"""What modules import, by their syntax trees."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of every import in a module, also of those inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)
