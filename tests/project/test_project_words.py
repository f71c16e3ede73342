"""What no file of the repository may speak of, and the shape that files have."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest
from readme_blocks import ROOT

TEXTS = (".py", ".md", ".cfg", ".toml", ".yaml", ".yml", ".sh", ".in", "")
FORBIDDEN = {
    "a folder of one machine": r"(?<![\w.*])/(?:work|root|home/(?!me\b))[\w/.-]*",
    "how it was written": r"\b(?:sub-?|helper )agents?\b|\bbrief\.md\b",
    "work that was left": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "a package registry or mirror": r"\bpypi\.org\b|\bpythonhosted\b|/opt/(?:pypi|wheels)\b",
    "an unresolved merge": r"^(?:<{7}|>{7}) \w",
    "archaic English": r"(?i)\b(?:anew|henceforth|hitherto|therein|whereby|lest|ought|heed(?:s|ed)?|likewise|for ever"
    r"|in vain|by way of|half-way|put right|reckon(?:s|ed)?|under way|at work|carr(?:y|ies|ied|ying) on with"
    r"|goes on with|stretch of time|told apart|tells? apart)\b",
}


@lru_cache
def files() -> tuple[Path, ...]:
    """All files that are, or are about to be, in the repository; in an unpacked release, all files there."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if not listed.returncode:
        paths = [ROOT / name for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0") if name]
    else:
        hidden = {".venv", ".cache", "build", "dist"}
        paths = [path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts)]
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in files():
        if path.suffix in TEXTS and "__pycache__" not in path.parts:
            try:
                found.append((path.relative_to(ROOT), path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue  # data of a test
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_speaks_of(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what], re.M)
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in texts()
        if path.name != Path(__file__).name
        for match in pattern.finditer(text)
    ]
    assert not found


def test_no_file_is_large() -> None:
    assert [path for path in files() if path.stat().st_size > 1_000_000] == []


def test_scripts_can_be_run() -> None:
    for path in files():
        if path.read_bytes()[:2] == b"#!":
            executable = bool(path.stat().st_mode & 0o100)
            assert executable or path.suffix == ".py", f"{path} is not executable"


def test_a_string_that_stands_alone_describes_what_is_above_it() -> None:
    """The description of a constant follows it directly; nothing else is a string on its own."""
    for path in sorted((ROOT / "archec").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body = getattr(node, "body", [])
            for above, one in pairwise(body if isinstance(body, list) else []):
                value = one.value if isinstance(one, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    assert isinstance(above, (ast.Assign, ast.AnnAssign)), f"{path}:{one.lineno}"


def test_a_name_of_a_class_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in (ROOT / "archec").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
