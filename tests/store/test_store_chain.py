"""The chain of batches through the journals of all runs: what was removed, swapped or edited is found."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archec.archive.opening import catch_up, last_run, rebuild
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import DataSetRead, ObiChange, Record, RunEnd, RunStart, SetAdded, encode
from archec.catalogue.model import DataSet, KeyedSet, Note, Version
from archec.errors import ConfigError, CorruptArchive, CorruptJournal
from archec.store.journal import NO_BATCH, JournalBatch, JournalWriter, read_batches
from archec.store.layout import Layout, create, journals

RUNS = (1000, 2000, 3000)
COVERAGE = KeyedSet("c", b'{"complete":true}')


def change(tist: int, text: str) -> ObiChange:
    """A tobi that holds ``text`` from ``tist`` on."""
    data = text.encode()
    version = Version(hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest(), len(data))
    note = Note(tist, "changed", reason="x1")
    return ObiChange("tobi", "RePEc:aaa:sss:1", "x", {tist: version.sha256}, (), version, {tist: note})


def batches_of(run: int) -> list[list[Record]]:
    """What each run notes, in three batches."""
    data_set = DataSetRead(DataSet(run, run, "x", COVERAGE.key))
    return [
        [RunStart(run, data_set=run), SetAdded.of(COVERAGE)],
        [change(run, f"text {run}"), data_set],
        [RunEnd(run, "done", {})],
    ]


def write_run(layout: Layout, run: int, head: str, *, pack: bool = False) -> str:
    """Writes a run's journal behind ``head``; the new head."""
    with JournalWriter(layout, run, head=head) as journal:
        for n, records in enumerate(batches_of(run)):
            journal.append([encode(record) for record in records], run + n)
        if pack:
            journal.finish()
    return journal.head


def write_runs(layout: Layout, *, packed: int = 2) -> None:
    """Three runs, of which the first ``packed`` are finished."""
    head = NO_BATCH
    for n, run in enumerate(RUNS):
        head = write_run(layout, run, head, pack=n < packed)


def all_batches(layout: Layout) -> list[JournalBatch]:
    return [batch for journal in journals(layout) for batch in read_batches(journal.path)]


def plain_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def put_plain(path: Path, data: bytes) -> None:
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


@pytest.fixture
def archive(flat: Layout) -> Layout:
    write_runs(flat)
    return flat


@pytest.fixture
def catalogues(tmp_path: Path) -> Iterator[Callable[[], Catalogue]]:
    """Makes fresh catalogues."""
    made: list[Catalogue] = []

    def make() -> Catalogue:
        made.append(open_catalogue(f"sqlite:///{len(made)}.sqlite", base=tmp_path, create=True))
        return made[-1]

    yield make
    for catalogue in made:
        catalogue.close()


def everything(catalogue: Catalogue) -> list[str]:
    return list(dump(catalogue, everything=True))


def check_found(archive: Layout, catalogue: Catalogue, match: str = "") -> None:
    """Neither catching up from nothing nor a rebuild takes these journals; a rebuild leaves the catalogue as it is."""
    before = everything(catalogue)
    with pytest.raises(CorruptJournal, match=match) as caught:
        rebuild(archive, catalogue)
    assert "\n" not in caught.value.message
    assert everything(catalogue) == before
    catalogue.clear()
    with pytest.raises(CorruptJournal, match=match):
        catch_up(archive, catalogue)


def test_the_batches_of_all_runs_are_one_chain(archive: Layout) -> None:
    found = all_batches(archive)
    assert len(found) == 9
    assert found[0].prev == NO_BATCH
    assert [batch.prev for batch in found[1:]] == [batch.sha256 for batch in found[:-1]]
    assert len({batch.sha256 for batch in found}) == 9
    data = b"".join(plain_of(journal.path) for journal in journals(archive))
    ends = re.findall(rb'"prev":"([0-9a-f]{64})","sha256":"([0-9a-f]{64})"', data)
    assert [(prev.decode(), own.decode()) for prev, own in ends] == [(batch.prev, batch.sha256) for batch in found]


def test_the_same_batches_after_another_head_are_others(tmp_path: Path) -> None:
    heads = set()
    for head in (NO_BATCH, "", "1" * 64):
        heads.add(write_run(create(tmp_path / f"archive {head}"), 1000, head))
    assert len(heads) == 2


def test_reopening_a_journal_goes_on_from_its_own_last_batch(flat: Layout) -> None:
    first = JournalWriter(flat, 1000)
    assert first.head == NO_BATCH
    first.append([b"1"], 1000)
    first.close()
    with JournalWriter(flat, 1000, head="1" * 64) as again:
        assert again.head == first.head
        again.append([b"2"], 1000)
    one, two = all_batches(flat)
    assert two.prev == one.sha256
    with first.path.open("ab") as file:
        file.write(b'{"torn')
    with JournalWriter(flat, 1000) as torn:
        assert torn.head == two.sha256


def test_a_journal_that_was_torn_in_its_first_batch_keeps_the_head_given(flat: Layout) -> None:
    (flat.runs / "1000.jsonl").write_bytes(b'{"torn')
    with JournalWriter(flat, 1000, head="1" * 64) as journal:
        journal.append([b"1"], 1000)
    assert all_batches(flat)[0].prev == "1" * 64


@pytest.mark.parametrize("packed", [0, 1, 3])
def test_packing_does_not_matter(
    archive: Layout, tmp_path: Path, catalogues: Callable[[], Catalogue], packed: int
) -> None:
    other = create(tmp_path / "other")
    write_runs(other, packed=packed)
    assert all_batches(other) == all_batches(archive)
    one, two, three = catalogues(), catalogues(), catalogues()
    assert catch_up(archive, one) == catch_up(other, two) == rebuild(other, three) == 9
    assert everything(one) == everything(two) == everything(three)
    assert one.position().head == all_batches(archive)[-1].sha256
    assert catch_up(other, one) == 0


def test_a_catalogue_goes_on_from_its_head(archive: Layout, catalogues: Callable[[], Catalogue]) -> None:
    catalogue = catalogues()
    catch_up(archive, catalogue)
    write_run(archive, 4000, catalogue.position().head)
    assert catch_up(archive, catalogue) == 3
    whole = catalogues()
    assert rebuild(archive, whole) == 12
    assert everything(catalogue) == everything(whole)


def test_a_run_that_follows_another_head_is_found(archive: Layout, catalogues: Callable[[], Catalogue]) -> None:
    catalogue = catalogues()
    catch_up(archive, catalogue)
    before = everything(catalogue)
    write_run(archive, 4000, NO_BATCH)
    with pytest.raises(CorruptJournal, match=r"4000\.jsonl: batch 1 does not follow"):
        catch_up(archive, catalogue)
    assert everything(catalogue) == before
    check_found(archive, catalogue, "batch 1 does not follow")


@pytest.mark.parametrize("run", RUNS[:2])
def test_a_journal_that_was_removed(archive: Layout, catalogues: Callable[[], Catalogue], run: int) -> None:
    (archive.runs / f"{run}.jsonl.gz").unlink()
    check_found(archive, catalogues(), "does not follow the one before it: a journal is missing or was replaced")


def test_the_newest_journal_removed_is_found_by_a_catalogue(
    archive: Layout, catalogues: Callable[[], Catalogue]
) -> None:
    catalogue = catalogues()
    catch_up(archive, catalogue)
    (archive.runs / "3000.jsonl").unlink()
    with pytest.raises(CorruptArchive, match="contains run 3000"):
        catch_up(archive, catalogue)


def test_two_journals_that_were_swapped(archive: Layout, catalogues: Callable[[], Catalogue]) -> None:
    one, two = (archive.runs / f"{run}.jsonl.gz" for run in RUNS[:2])
    data = one.read_bytes()
    one.chmod(0o644)
    two.chmod(0o644)
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    check_found(archive, catalogues(), r"1000\.jsonl\.gz: batch 1 does not follow")


def test_a_journal_of_another_archive(archive: Layout, tmp_path: Path, catalogues: Callable[[], Catalogue]) -> None:
    other = create(tmp_path / "other")
    write_run(other, 2000, NO_BATCH, pack=True)
    os.replace(other.runs / "2000.jsonl.gz", archive.runs / "2000.jsonl.gz")
    check_found(archive, catalogues(), r"2000\.jsonl\.gz: batch 1 does not follow")


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("change", ["first removed", "middle removed", "swapped", "doubled", "edited"])
def test_a_batch_that_is_not_as_it_was(
    archive: Layout, catalogues: Callable[[], Catalogue], run: int, change: str
) -> None:
    path = next(journal.path for journal in journals(archive) if journal.tist == run)
    data, starts = plain_of(path), [batch.offset for batch in read_batches(path)]
    one, two, three = (data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True))
    changed = {
        "first removed": two + three,
        "middle removed": one + three,
        "swapped": two + one + three,
        "doubled": one + two + two + three,
        "edited": one + two.replace(b"text", b"tex7").replace(b'"reason":"x1"', b'"reason":"x2"') + three,
    }[change]
    assert changed != data
    put_plain(path, changed)
    with pytest.raises(CorruptJournal, match=re.escape(str(path))):
        list(read_batches(path))
    check_found(archive, catalogues(), re.escape(str(path)))


def forged(data: bytes, start: int, end: int) -> bytes:
    """A journal with another text in one batch, whose own sha256 was made to fit."""
    batch = data[start:end].replace(b'"reason":"x1"', b'"reason":"x2"')
    assert batch != data[start:end]
    body = batch[: batch.rindex(b',"sha256"')]
    sealed = body + b',"sha256":"%b"}\n' % hashlib.sha256(body).hexdigest().encode()
    return data[:start] + sealed + data[end:]


@pytest.mark.parametrize("run", RUNS)
def test_an_edited_batch_with_a_fitting_checksum(
    archive: Layout, catalogues: Callable[[], Catalogue], run: int
) -> None:
    path = next(journal.path for journal in journals(archive) if journal.tist == run)
    _, second, third = [batch.offset for batch in read_batches(path)]
    put_plain(path, forged(plain_of(path), second, third))
    with pytest.raises(CorruptJournal, match=re.escape(str(path))):
        list(read_batches(path))
    check_found(archive, catalogues(), re.escape(str(path)))


@pytest.mark.parametrize("run", RUNS[:2])
def test_a_last_batch_that_was_cut_off_or_edited(
    archive: Layout, catalogues: Callable[[], Catalogue], run: int
) -> None:
    """The file alone reads well: the next run's journal tells."""
    path = archive.runs / f"{run}.jsonl.gz"
    data, starts = plain_of(path), [batch.offset for batch in read_batches(path)]
    put_plain(path, data[: starts[-1]])
    assert len(list(read_batches(path))) == 2
    check_found(archive, catalogues(), f"{RUNS[RUNS.index(run) + 1]}.*: batch 1 does not follow")
    put_plain(path, forged(data[: starts[-1]], starts[1], starts[-1]))
    assert len(list(read_batches(path))) == 2
    check_found(archive, catalogues(), f"{RUNS[RUNS.index(run) + 1]}.*: batch 1 does not follow")


def test_the_batch_that_a_catalogue_knows_was_replaced(archive: Layout, catalogues: Callable[[], Catalogue]) -> None:
    path = archive.runs / "3000.jsonl"
    data, (_, second, third) = path.read_bytes(), [batch.offset for batch in read_batches(path)]
    path.write_bytes(data[:third])
    catalogue = catalogues()
    catch_up(archive, catalogue)
    assert catalogue.position()[:2] == (3000, 2)
    path.write_bytes(forged(data[:third], second, third))
    with pytest.raises(CorruptArchive, match=r"batch 2 is not the one that the catalogue .* knows"):
        catch_up(archive, catalogue)
    path.write_bytes(data[:second])
    with pytest.raises(CorruptArchive, match=r"ends with batch 1, and the catalogue .* knows of 2"):
        catch_up(archive, catalogue)
    path.write_bytes(data)
    assert catch_up(archive, catalogue) == 1


def version_1(lines: bytes) -> bytes:
    """A batch as journals of version 1 have it."""
    return lines + b'{"type":"batch","n":1,"lines":1,"stamp":1,"xxh3":"%032d"}\n' % 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_journal_of_version_1_is_refused(flat: Layout, catalogues: Callable[[], Catalogue], packed: bool) -> None:
    path = flat.runs / ("1000.jsonl.gz" if packed else "1000.jsonl")
    put_plain(path, version_1(b'{"type":"run","tist":1000}\n'))
    before = path.read_bytes()
    catalogue = catalogues()
    reads: list[Callable[[], object]] = [
        lambda: list(read_batches(path)),
        lambda: catch_up(flat, catalogue),
        lambda: rebuild(flat, catalogue),
    ]
    if not packed:
        reads += [lambda: JournalWriter(flat, 1000), lambda: last_run(flat)]
    for read in reads:
        with pytest.raises(ConfigError, match="is a journal of version 1; this archec reads version 2") as caught:
            read()
        assert str(path) in caught.value.message
        assert "\n" not in caught.value.message + caught.value.hint
    assert path.read_bytes() == before
