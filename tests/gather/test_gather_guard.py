"""The guard against losing an archive by mistake, and data sets that are not what they should be."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import random
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from gather_support import Member, check, histories, lines, make, run, tarball, template, write_papers
from hypothesis import given, settings
from hypothesis import strategies as st

from archec.archive.evidence import Evidence
from archec.archive.held_back import id_list, is_held_back
from archec.catalogue.model import DataSet, HeldBack, HeldGroup
from archec.config import Config
from archec.errors import DataSetError, Exit, UsageError
from archec.gather.run import exit_code
from archec.tist import parse_when

T1, T2, T3 = (parse_when(f"2001-01-0{day}") for day in (1, 2, 3))


def papers(path: str, handles: list[str], title: str = "A title") -> Member:
    return Member(path, "\n".join(template(handle, title) for handle in handles).encode())


def series(code: str, numbers: range) -> list[str]:
    return [f"RePEc:{code}:sss:{n:04d}" for n in numbers]


def data_set(folder: Path, day: int, **archives: int) -> Path:
    """A tarball with so many papers of each archive."""
    members = [papers(f"RePEc/{code}/sss/p.rdf", series(code, range(count))) for code, count in archives.items()]
    return tarball(folder / f"RePEc_2001-01-{day:02d}.tar", members)


# -- the guard ----------------------------------------------------------------------------------------


def test_a_late_data_set_is_judged_by_what_the_directory_held_then(config: Config, folder: Path) -> None:
    moved = {"aaa/sss/p.rdf": range(6, 10), "bbb/x.rdf": range(6)}
    members = [papers(f"RePEc/{place}", series("aaa", numbers)) for place, numbers in moved.items()]
    run(config, data_set(folder, 1, aaa=10))
    run(config, tarball(folder / "RePEc_2001-01-03.tar", members))
    late = tarball(folder / "RePEc_2001-01-02.tar", [papers("RePEc/aaa/sss/p.rdf", series("aaa", range(4, 10)))])
    report = run(config, late)
    assert (report.tobis["lost"], report.held_back) == (4, {})
    check(config)


@pytest.mark.parametrize(
    ("before", "after", "held_back"),
    [
        (400, 380, False),  # 20, exactly 5 %
        (400, 379, True),  # 21, more than 5 %
        (399, 379, True),  # 20, a little more than 5 %
        (100, 81, False),  # 19 %, but less than 20
        (100, 80, True),
        (20, 0, True),
        (19, 0, True),  # more than half
        (19, 9, True),
        (19, 10, False),
        (3, 1, True),
        (2, 0, False),
        (1000, 951, False),
    ],
)
def test_its_bounds(config: Config, folder: Path, before: int, after: int, held_back: bool) -> None:
    run(config, data_set(folder, 1, aaa=before, bbb=1))
    members = [papers("RePEc/aaa/sss/p.rdf", series("aaa", range(after)))] if after else [Member("RePEc/aaa/", None)]
    report = run(config, tarball(folder / "RePEc_2001-01-02.tar", members))
    assert bool(report.held_back) == held_back
    assert report.tobis["lost"] == (0 if held_back else before - after)
    assert exit_code(report) == (Exit.LOSSES_HELD_BACK if held_back else Exit.DONE)
    check(config)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_is_held_back(losses: int, held: int) -> None:
    config = Config()
    few = held >= 3 and 2 * losses > held
    assert is_held_back(config, losses, held) == (few or (losses >= 20 and 20 * losses > held))


def test_losses_are_let_through_by_name(config: Config, folder: Path) -> None:
    run(config, data_set(folder, 1, aaa=40, bbb=40, ccc=40))
    file = data_set(folder, 2, aaa=1, bbb=1, ccc=39)
    report = run(config, file)
    assert (report.held_back, report.tobis["lost"]) == ({"aaa": 39, "bbb": 39}, 1)
    report = run(config, file, accept=["aaa"])
    assert (report.held_back, report.tobis["lost"]) == ({"bbb": 39}, 39)
    report = run(config, file, accept=["all"])
    assert (report.held_back, report.tobis["lost"]) == ({}, 39)
    assert exit_code(run(config, file)) == Exit.DONE
    check(config)


def test_losses_of_the_core_archive_s_directory_can_be_let_through(config: Config, folder: Path) -> None:
    """Series templates that only ``all/`` holds: held back they are neither lost nor seen."""
    def core(day: int, count: int) -> Path:
        handles = [f"RePEc:aaa:s{n}" for n in range(count)] + [f"RePEc:bbb:s{n}" for n in range(3)]
        return tarball(folder / f"RePEc_2001-01-{day:02d}.tar", [papers("RePEc/all/seri.rdf", handles)])

    run(config, core(1, 40))
    second = core(2, 5)
    assert run(config, second).held_back == {"aaa": 35}
    assert run(config, second).held_back == {"aaa": 35}
    assert run(config, second, accept=["aaa"]).tobis["lost"] == 35
    assert not run(config, second).held_back
    check(config)
    direct = make(folder / "direct")
    run(direct, second, accept=["all"])
    run(direct, core(1, 40))
    assert lines(direct) == lines(config)


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS)
def test_order_does_not_matter_once_losses_are_let_through(folder: Path, order: tuple[int, ...]) -> None:
    """However the guard held back on the way: after --accept-losses for each, all is as if it had not."""
    files = [data_set(folder, 1, aaa=40, bbb=5), data_set(folder, 2, aaa=3, bbb=5), data_set(folder, 3, aaa=30)]
    plain = make(folder / "plain", {"max_loss": "100%"})
    for file in files:
        run(plain, file)
    config = make(folder / "archive")
    for n in order:
        run(config, files[n])
    for n in order:
        run(config, files[n], accept=["aaa", "bbb"])
    assert lines(config) == lines(plain)
    check(config)


def test_held_back_through_complete(config: Config, folder: Path) -> None:
    run(config, data_set(folder, 1, aaa=40, bbb=5))
    file = data_set(folder, 2, bbb=5)
    assert not run(config, file).held_back, "without --complete an archive that is not there says nothing"
    assert run(config, file, complete=True).held_back == {"aaa": 40}
    assert run(config, file, complete=True, accept=["aaa"]).tobis["lost"] == 40
    check(config)


# -- what cannot be read is no evidence ---------------------------------------------------------------


def with_link(path: Path, name: str, *members: Member) -> Path:
    tarball(path, members)
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, "/elsewhere"
        tar.addfile(info)
    return path


def test_a_link_in_place_of_an_archive_is_no_evidence(config: Config, folder: Path) -> None:
    run(config, data_set(folder, 1, aaa=2, bbb=2))
    kept = papers("RePEc/aaa/sss/p.rdf", series("aaa", range(2)))
    report = run(config, with_link(folder / "RePEc_2001-01-02.tar", "RePEc/bbb", kept), complete=True)
    assert report.tobis["lost"] == 0
    assert report.problem_counts == {"link": 1}
    check(config)


def test_a_link_in_a_directory_that_is_no_archive_code(config: Config, folder: Path) -> None:
    run(config, data_set(folder, 1, aaa=2))
    kept = papers("RePEc/aaa/sss/p.rdf", series("aaa", range(1)))
    report = run(config, with_link(folder / "RePEc_2001-01-02.tar", "RePEc/aaa/sss/link.rdf", kept))
    assert report.tobis["lost"] == 0


@pytest.mark.parametrize(
    "spoilt", [b"", b"\0\0\0\0", b"<html><body>404</body></html>", b"%PDF-1.4", b"\xff\xfeab", b"words\n"]
)
def test_a_spoilt_file_is_no_evidence(config: Config, folder: Path, spoilt: bytes) -> None:
    run(config, data_set(folder, 1, aaa=2, bbb=2))
    members = [Member("RePEc/aaa/sss/p.rdf", spoilt), papers("RePEc/bbb/sss/p.rdf", series("bbb", range(1)))]
    report = run(config, tarball(folder / "RePEc_2001-01-02.tar", members))
    assert report.tobis["lost"] == 1
    assert (report.unread, sum(report.problem_counts.values())) == (1, 1)
    check(config)


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_tarball_that_breaks_off(config: Config, folder: Path, kind: str, share: float) -> None:
    run(config, data_set(folder, 1, aaa=5, bbb=60))
    filler = Member("RePEc/ccc/x.bin", random.Random(1).randbytes(300_000))
    members = [papers("RePEc/aaa/sss/p.rdf", series("aaa", range(1))), filler]
    whole = tarball(folder / "RePEc_2001-01-02.tar", members).read_bytes()
    data = whole if kind == "tar" else gzip.compress(whole)
    part = folder / f"RePEc_2001-01-03.{kind}"
    part.write_bytes(data[: int(len(data) * share)])
    report = run(config, part, complete=True, accept=["all"])
    assert (report.whole, report.complete, report.tobis["lost"]) == (False, False, 0)
    assert report.as_value()["data_set"]["whole"] is False
    assert report.problem_counts["truncated"] >= 1
    check(config)


def test_hostile_members(config: Config, folder: Path) -> None:
    path = folder / "RePEc_2001-01-01.tar"
    good = template("RePEc:aaa:sss:1").encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("../../etc/cron.d/x", "/etc/passwd", "RePEc/aaa/../../../x.rdf", "RePEc/aaa/sss/1.rdf"):
            info = tarfile.TarInfo(name)
            info.size = len(good)
            tar.addfile(info, io.BytesIO(good))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"RePEc/bbb/{kind.decode()}.rdf")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    report = run(config, path)
    assert report.problem_counts["bad-name"] == 3
    assert report.problem_counts["link"] == 2
    assert report.problem_counts["bad-member"] == 3
    assert list(histories(config)) == ["RePEc:aaa:sss:1"]
    check(config)


def test_a_bomb(folder: Path) -> None:
    """A gigabyte of zeros in a small tarball costs no memory, and stops nothing else."""
    config = make(folder / "archive", {"max_template_file": "1MB"})
    path = folder / "RePEc_2001-01-01.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as raw:
        info = tarfile.TarInfo("RePEc/aaa/bomb.rdf")
        info.size = 200_000_000
        raw.write(info.tobuf())
        for _ in range(200):
            raw.write(bytes(1_000_000))
        raw.write(bytes(-info.size % 512))
        good = template("RePEc:bbb:sss:1").encode()
        info = tarfile.TarInfo("RePEc/bbb/sss/1.rdf")
        info.size = len(good)
        raw.write(info.tobuf() + good + bytes(-len(good) % 512) + bytes(1024))
    report = run(config, path)
    assert report.tobis["new"] == 1
    assert report.problem_counts == {"too-large": 1}
    assert report.whole


def test_hostile_templates(config: Config, folder: Path) -> None:
    texts = [
        template("RePEc:aaa:sss:" + "x" * 5000),
        template("RePEc:aaa:sss:../../../etc/passwd"),
        template("RePEc:aaa:sss:a\0b"),
        template("RePEc:aaa:sss:a\u2013b"),
        template("RePEc:aaa:sss:.."),
        template(".."),
        template("RePEc:"),
        template("RePEc:aaa:sss:" + "\u20ac" * 300),
        "Template-Type: ReDIF-Paper 1.0\nTitle: no handle\n",
        "Template-Type: \n",
        template("RePEc:aaa:sss:url", urls=["http://[", "http://h/" + "x" * 3000, "http://u:secret@h/x", "\x00", " "]),
    ]
    file = tarball(folder / "RePEc_2001-01-01.tar", [Member("RePEc/aaa/sss/x.rdf", "\n".join(texts).encode())])
    report = run(config, file)
    assert report.nameless >= 2
    assert report.tobis["new"] + report.nameless == len(texts)
    check(config)
    assert "secret" not in "".join(path.read_text("latin-1") for path in config.store_path.rglob("runs/*"))
    assert run(config, file).tobis["new"] == 0


def test_the_same_member_twice(config: Config, folder: Path) -> None:
    """What a later member of the same path replaces is as if it had not been there."""
    first, second = papers("RePEc/aaa/sss/p.rdf", series("aaa", range(5))), Member("RePEc/aaa/sss/p.rdf", b"")
    assert run(config, tarball(folder / "RePEc_2001-01-01.tar", [second, first])).unread == 1
    assert len(histories(config)) == 5
    report = run(config, tarball(folder / "RePEc_2001-01-02.tar", [first, second]))
    assert report.tobis["lost"] == 0
    report = run(config, tarball(folder / "RePEc_2001-01-03.tar", [second, first._replace(data=b"# nothing\n")]))
    assert all(len(history) == 1 for history in histories(config).values())
    check(config)


# -- two data sets of one date ------------------------------------------------------------------------


def test_a_conflict_is_reported_and_the_greater_sha256_counts(config: Config, folder: Path) -> None:
    handle = "RePEc:aaa:sss:1"
    earlier = tarball(folder / "RePEc_2001-01-01.tar", [papers("RePEc/aaa/sss/p.rdf", [handle], "x")])
    first = tarball(folder / "RePEc_2001-01-02_a.tar", [papers("RePEc/aaa/sss/p.rdf", [handle], "x")])
    other = tarball(folder / "RePEc_2001-01-02_b.tar", [papers("RePEc/aaa/sss/p.rdf", [handle], "y")])
    for file in (earlier, first):
        assert run(config, file).conflicts == 0
    assert run(config, other).conflicts == 1, "also where the first of them changed nothing"
    assert run(config, first).conflicts == 1
    greater = max(hashlib.sha256(template(handle, title).encode()).hexdigest() for title in "xy")
    assert histories(config)[handle][T2 if greater != histories(config)[handle][T1] else T1] == greater
    check(config)
    again = make(folder / "again")
    run(again, other)
    report = run(again, first)
    assert (report.conflicts, report.problems[0].code) == (1, "conflict")
    run(again, earlier)
    assert lines(again) == lines(config)
    check(again)


# -- dates --------------------------------------------------------------------------------------------


def test_dates(folder: Path, config: Config) -> None:
    member = papers("RePEc/aaa/sss/p.rdf", series("aaa", range(1)))._replace(mtime=T3)
    named = tarball(folder / "RePEc-2001-01-02.tar", [member])
    bare = tarball(folder / "repec.tar", [member])
    assert run(config, named).data_set == T2
    assert run(config, named, as_of=T1).data_set == T1
    assert run(config, bare).data_set == T3
    assert list(histories(config)["RePEc:aaa:sss:0000"]) == [T1]
    dateless = tarball(folder / "dateless.tar", [member._replace(mtime=0)])
    with pytest.raises(DataSetError, match="date"):
        run(config, dateless)
    assert run(config, dateless, as_of=T2).data_set == T2
    with pytest.raises(UsageError, match="is in the future"):
        run(config, named, as_of=T2 + 100 * 366 * 86400)
    with pytest.raises(DataSetError, match="no such data set"):
        run(config, folder / "RePEc_2001-01-05.tar")
    check(config)


def test_a_data_set_that_is_absent_leaves_no_trace(config: Config, folder: Path) -> None:
    config.data_path.rmdir()
    with pytest.raises(DataSetError):
        run(config)
    assert list((config.store_path / "runs").iterdir()) == []


def test_a_file_that_is_no_tarball(config: Config, folder: Path) -> None:
    for data in (b"", b"words", bytes(10240), gzip.compress(b"words"), b"\x1f\x8b\x08"):
        path = folder / "RePEc_2001-01-01.tar.gz"
        path.write_bytes(data)
        with pytest.raises(DataSetError):
            run(config, path)
    assert list((config.store_path / "runs").iterdir()) == []
    check(config)


def test_an_empty_data_set_loses_nothing(config: Config) -> None:
    write_papers(config, ["http://127.0.0.1:9/x"])
    assert run(config, fetch=False).tobis["new"] == 1
    for path in sorted(config.data_path.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with pytest.raises(DataSetError, match="check that it is mounted"):
        run(config, fetch=False)
    assert None not in histories(config)["RePEc:aaa:sss:0"].values()
    check(config)


@pytest.mark.parametrize("examples", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_any_bytes(memory_folder: Callable[[], Path], examples: int) -> None:
    """Whatever is in the files: the run ends, and all that must hold, holds."""
    template = b"Template-Type: x\nHandle: RePEc:aaa:s:1\n"

    @settings(max_examples=examples)
    @given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([template, b"\n"])), max_size=6))
    def any_bytes(data: list[bytes]) -> None:
        folder = memory_folder()
        config = make(folder / "archive")
        members = [Member(f"RePEc/aaa/s/{n}.rdf", part) for n, part in enumerate(data)]
        members.append(Member("RePEc/aaa/s/all.rdf", b"".join(data)))
        file = tarball(folder / "RePEc_2001-01-01.tar", members)
        run(config, file)
        assert run(config, file).tobis["new"] == 0
        check(config)

    any_bytes()


def test_losses_of_thousands_of_archives_are_looked_up_one_archive_at_a_time() -> None:
    """Also where a directory holds back handles of others, as all/ does; and of archives whose codes are longer."""
    codes = [f"{n:03x}" for n in range(3000)]
    ids = {code: [f"RePEc:{code}", f"RePEc:{code}:sss:1", f"RePEc:{code}:sss:2"] for code in codes}
    ids["all"] = [f"RePEc:{code}:ttt" for code in codes[:7]]
    ids["000"].append("RePEc:000-x:sss:1")
    sets = {name: id_list(one) for name, one in ids.items()}
    groups = {name: HeldGroup(len(ids[name]), one.key) for name, one in sets.items()}
    known, asked = {one.key: one.data for one in sets.values()}, Counter[str]()

    def keyed(key: str) -> bytes | None:
        asked[key] += 1
        return known.get(key)

    known_set = DataSet(1000, 1001, "x")
    is_held = Evidence([known_set], keyed, [HeldBack(1001, "tobi", groups)]).look(known_set).held_back
    assert all(map(is_held, sorted(itertools.chain.from_iterable(ids.values()))))
    assert not any(is_held(f"RePEc:{code}:sss:3") for code in codes)
    assert not any(map(is_held, ["RePEc:000-x", "RePEc:zzz:sss:1", "loose:1"]))
    assert asked.total() <= 4 * len(groups)
