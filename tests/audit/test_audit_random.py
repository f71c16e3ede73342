"""Random faults over store, journals, descriptor, catalogue, memory and vault: each is named once, repaired, and
nothing else is touched. Ten faults a round; ``ARCHEC_TEST_SEED`` gives other ones."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from audit_support import World, checked, clone, rewrite, run_sql, tree, verified
from gather_support import archec_inline
from test_audit_refold import EDITS

from archec.archive.opening import opened
from archec.audit.last_checked import memory_path
from archec.audit.repair import write_descriptor
from archec.export.checking import VaultFault
from archec.export.run import export_warc, verify_vault
from archec.export.units import UnitSelection
from archec.export.writing import ExportRequest, NotExported
from archec.progress import Meter

SEED = int(os.environ.get("ARCHEC_TEST_SEED", "14"))
Harm = Callable[[Path, random.Random], None]


def flip(path: Path, draw: random.Random) -> None:
    """Flips a bit, but none of a gzip header, in which some say nothing."""
    data = bytearray(path.read_bytes())
    data[draw.randrange(min(10, len(data) - 1), len(data))] ^= 1 << draw.randrange(8)
    rewrite(path, bytes(data))


def cut(path: Path, draw: random.Random) -> None:
    """Cuts off the end, and more of it than a line end."""
    data = path.read_bytes()
    rewrite(path, data[: draw.randrange(max(1, len(data) - 1))])


def longer(path: Path, draw: random.Random) -> None:
    rewrite(path, path.read_bytes() + draw.randbytes(draw.randrange(1, 9)))


def gone(path: Path, draw: random.Random) -> None:
    path.unlink()


def link_out(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to(draw.choice(["/etc/passwd", "../../../../x", path.name]))


def special(path: Path, draw: random.Random) -> None:
    path.unlink()
    draw.choice([os.mkfifo, os.mkdir])(path)


IN_PLACE: tuple[Harm, ...] = (flip, cut, longer)
INSTEAD: tuple[Harm, ...] = (gone, link_out, special)


class Faults:
    """One archive, its sound copy and its vault, harmed and repaired again and again."""

    def __init__(self, world: World, pristine: World, vault: Path, draw: random.Random) -> None:
        self.world, self.pristine, self.vault, self.draw = world, pristine, vault, draw
        self.root, self.good = world.config.store_path, tree(pristine.config.store_path)
        self.sound_vault = {path: path.read_bytes() for path in sorted((vault / "archive").rglob("*.gz"))}
        self.obis = sorted(path for path in self.good if path[0].isdigit() and "=" not in path)
        self.reached: dict[str, Path] = {}
        self.done = 0

    def round(self) -> None:
        """Ten faults: eight in the archive folder (two are strays), one in catalogue or memory, one in the vault."""
        draw = self.draw
        harmed: Counter[str] = Counter()
        self.reached = {path: (self.root / path).resolve() for path in self.obis}
        for path in draw.sample(self.obis, 5):
            harmed.update(self._harm(path))
        frame = draw.choice(["runs", "layout.json", "0=archec_1.0"])
        if frame == "runs":
            frame = draw.choice(sorted(path for path in self.good if path.startswith("runs/")))
        draw.choice([flip, cut, gone])(self.root / frame, draw)
        harmed[frame] += 1
        strays = [f"stray-{draw.randrange(1000)}", f"123/456/stray-{draw.randrange(1000)}"]
        for stray in strays:
            (self.root / stray).parent.mkdir(parents=True, exist_ok=True)
            (self.root / stray).write_bytes(draw.randbytes(9))
        self._put_right(harmed, strays)
        self._catalogue_or_memory()
        self._vault()
        self.done += 10

    def _harm(self, path: str) -> set[str]:
        """Harms what lies at a path; the paths at which that is to be named."""
        place = self.root / path
        if place.is_symlink() or not place.is_file() or not place.stat().st_size or self.draw.random() < 0.4:
            self.draw.choice(INSTEAD)(place, self.draw)
            return {path}
        names = {other for other in self.obis if os.path.lexists(self.root / other)}
        names = {other for other in names if (self.root / other).lstat().st_ino == place.lstat().st_ino}
        self.draw.choice(IN_PLACE)(place, self.draw)
        return names

    def _put_right(self, harmed: Counter[str], strays: list[str]) -> None:
        copy = str(self.pristine.config.store_path)
        first = write_descriptor(self.world.config, copy)
        findings = verified(self.world, copy=copy)[1]
        told = Counter(finding.path for finding in (*([first] if first else []), *findings))
        for path in harmed:
            assert told[path] == 1, (path, [str(finding) for finding in findings])
        others = set(told) - set(harmed) - set(strays) - {"."}
        led = {path for path in self.obis if str(self.reached[path].relative_to(self.root.resolve())) in harmed}
        assert others <= led, "what leads to something that is harmed may be told, too, and nothing else"
        assert all(finding.fixed for finding in findings if finding.path in harmed), [str(f) for f in findings]
        after = checked(self.world, fix=True)[1]
        assert sorted(finding.path for finding in after) == sorted([strays[0], strays[1]])
        assert all(finding.fixed for finding in after), [str(finding) for finding in after]
        shutil.rmtree(self.root / "quarantine")
        assert tree(self.root) == self.good, "nothing else is touched"

    def _catalogue_or_memory(self) -> None:
        if self.draw.random() < 0.5:
            memory_path(self.world.config).write_bytes(self.draw.randbytes(9000))
            for end in ("-wal", "-shm"):
                Path(f"{memory_path(self.world.config)}{end}").unlink(missing_ok=True)
            summary, findings = verified(self.world)
            assert (summary.clean, [finding.code for finding in findings]) == (True, ["memory-damaged"])
            return
        run_sql(self.world, EDITS[self.draw.choice(sorted(EDITS))])
        assert not checked(self.world)[0].clean
        assert archec_inline(self.world.config, "rebuild").code == 0
        assert checked(self.world)[1] == []

    def _vault(self) -> None:
        path = self.draw.choice(sorted(self.sound_vault))
        self.draw.choice([flip, cut, longer, gone])(path, self.draw)
        found: list[NotExported | VaultFault] = []
        with opened(self.pristine.config) as archive:
            verify_vault(archive, self.vault, UnitSelection(), Meter(), found.append)
        if found or not path.exists():
            assert {fault.path for fault in found} == {str(path.relative_to(self.vault))}
        else:  # in the head of a gzip member some bits say nothing
            assert gzip.decompress(path.read_bytes()) == gzip.decompress(self.sound_vault[path])
        path.write_bytes(self.sound_vault[path])


@pytest.fixture
def faults(pristine: World, memory_folder: Callable[[], Path]) -> Faults:
    folder = memory_folder()
    world = clone(pristine, folder / "harmed")
    with opened(pristine.config) as archive:
        export_warc(archive, ExportRequest(folder / "vault"), Meter(), lambda failed: None)
    return Faults(world, pristine, folder / "vault", random.Random(SEED))


def test_thirty_random_faults(faults: Faults) -> None:
    while faults.done < 30:
        faults.round()


@pytest.mark.slow
def test_a_thousand_random_faults(faults: Faults) -> None:
    while faults.done < 1000:
        faults.round()
