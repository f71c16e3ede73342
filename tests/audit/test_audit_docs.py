"""What the operations manual says of verify, check, copies and drills: every code, every key, and that it works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from audit_support import World, codes, flip, rewrite, tree, verified
from gather_support import ROOT, archec_inline, environment

from archec.audit.check import CheckSummary
from archec.audit.findings import CODES, Finding
from archec.audit.verify import VerifySummary
from archec.config import load

MANUAL = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading, to the next one of its level."""
    return MANUAL.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def block(title: str, kind: str = "sh", number: int = 0) -> str:
    """A code block of a section."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", section(title), re.M | re.S)[number]


def test_every_code_is_in_the_manual() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (wrong|note) \| (.+) \|$", section("Check"), re.M)
    assert rows == [(name, "wrong" if code.wrong else "note", code.meaning) for name, code in CODES.items()]


def test_every_key_is_in_the_manual() -> None:
    told = set(re.findall(r"`([a-z_0-9]+)`", section("Verify") + section("Check")))
    finding = Finding("corrupt", "p", "m", 1, "i", "a", "b", "c").as_value()
    keys = {*finding, *VerifySummary().as_value(), *CheckSummary().as_value()} - {"summary"}
    assert keys <= told


def play(script: str, srv: Path, **more: str) -> bytes:
    """Runs lines of the manual with the folders of the example elsewhere; the last line's output."""
    for old, new in (("/srv/archec", srv / "archec"), ("/mnt/copy", srv / "copy"), ("/srv/drill", srv / "drill")):
        script = script.replace(old, str(new))
    for old, new_text in more.items():
        script = script.replace(old, new_text)
    command = f'archec() {{ "{sys.executable}" -m archec "$@"; }}\nset -e\n{script}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, env=environment(), cwd=srv)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return done.stdout


@pytest.fixture
def srv(world: World, tmp_path: Path) -> Path:
    """The example's folders, with an archive in them and a second copy made by the lines of the manual."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    world.config.base.rename(world.config.base.with_name("archec"))
    folder = world.config.base.parent
    (folder / "copy" / "archec").mkdir(parents=True)
    play(block("A second copy"), folder)
    (folder / "copy" / "config.yaml").write_text(block("A second copy", "yaml") + "workers: 1\n")
    return folder


def there(srv: Path, name: str, world: World) -> World:
    return World(load(srv / name / "config.yaml", environ={}), world.places)


def test_the_second_copy(srv: Path, world: World) -> None:
    """Made by rsync, checked on its own, and each side repaired from the other."""
    archive, copy = there(srv, "archec", world), there(srv, "copy", world)
    good = tree(archive.config.store_path)
    assert tree(copy.config.store_path) == good
    assert os.path.samefile(copy.path("early"), copy.path("restated"))
    none = archec_inline(copy.config, "verify", "--repair-from", archive.config.store_path)
    assert (none.code, "archec rebuild" in none.err, "check --fix" in none.err) == (1, False, True)
    play("cd /mnt/copy\narchec rebuild", srv)
    flip(archive.path("pdf"))
    rewrite(archive.path("new page"), b"cut")
    play(block("A second copy"), srv)
    assert tree(copy.config.store_path) == good, "damage must not travel to the copy"
    copy.path("template").unlink()
    flip(copy.path("journal"))
    play("cd /mnt/copy\narchec verify --repair-from /srv/archec/archive", srv)
    summary, findings = verified(archive, copy=copy.config.store_path)
    assert (summary.clean, codes(findings)) == (True, ["corrupt", "corrupt"])
    for side in (archive, copy):
        after = {path: what for path, what in tree(side.config.store_path).items() if "quarantine" not in path}
        assert after == good
    play(block("A second copy", number=1), srv)


@pytest.mark.slow
def test_the_restore_drill(srv: Path) -> None:
    archec = Path(sys.executable).with_name("archec")
    drill = block("Restore drill").replace("/opt/archec/drill", f"ARCHEC={archec} {ROOT}/scripts/operations/drill")
    before = tree(srv / "archec" / "archive")
    printed = play(drill.replace("/mnt/drill", f"{srv}/drill"), srv)
    assert b"\nThe drill went well." in printed
    assert tree(srv / "archec" / "archive") == before
