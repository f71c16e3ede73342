"""The package's metadata: what it needs is what it imports, what it says is true."""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

from project_imports import imports
from readme_blocks import ROOT

import archec

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
PROVIDES = {
    "dateutil": "python-dateutil",
    "yaml": "PyYAML",
    "bson": "pymongo",
    "prometheus_client": "prometheus-client",
    "re2": "google-re2",
    "async_timeout": "async-timeout",
}
"""Where a distribution has another name than what is imported."""


def required(lines: str) -> set[str]:
    return {re.split(r"[ <>=;\[]", line)[0].lower() for line in lines.split("\n") if line}


def imported(folder: Path) -> dict[str, Path]:
    """The distributions that a folder's modules import, each with a place."""
    own = {path.stem for path in folder.rglob("*.py")} | {path.name for path in folder.rglob("*") if path.is_dir()}
    found: dict[str, Path] = {}
    for path in folder.rglob("*.py"):
        for top in (name.partition(".")[0] for _, name in imports(path)):
            if top not in sys.stdlib_module_names and top not in own and top != "archec":
                found[PROVIDES.get(top, top).lower()] = path
    return found


def test_what_is_imported_is_required_and_the_reverse() -> None:
    needed = required(SETUP["options"]["install_requires"])
    optional = required(SETUP["options.extras_require"]["report"])
    used = imported(ROOT / "archec")
    assert {name: path for name, path in used.items() if name not in needed | optional} == {}
    assert needed - set(used) == set()


def test_what_the_tests_import_is_in_their_extra() -> None:
    known = required(SETUP["options"]["install_requires"])
    known |= required(SETUP["options.extras_require"]["test"])
    known |= {folder.name for folder in (ROOT / "scripts").iterdir() if folder.is_dir()}
    assert {name: path for name, path in imported(ROOT / "tests").items() if name not in known} == {}


def test_pythons() -> None:
    listed = re.findall(r"Python :: 3\.([0-9]+)", SETUP["metadata"]["classifiers"])
    assert listed == [str(minor) for minor in range(10, 10 + len(listed))]
    assert SETUP["options"]["python_requires"] == ">=3.10"
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'target-version = "py310"' in pyproject
    assert 'python_version = "3.10"' in pyproject


def test_licence() -> None:
    assert SETUP["metadata"]["license"] == "Apache-2.0"
    assert "License ::" not in SETUP["metadata"]["classifiers"]
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_version_is_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(archec.__version__)}\b", changelog, re.M)


def test_every_folder_of_the_package_is_packed() -> None:
    for folder in {path.parent for path in (ROOT / "archec").rglob("*.py")}:
        assert (folder / "__init__.py").exists(), folder
