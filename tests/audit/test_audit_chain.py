"""The chain of batches: what was removed, swapped or rewritten in the journals is found by check and by verify."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from audit_support import World, checked, clone, codes, rewrite, tree, verified
from gather_support import archec_inline

from archec.audit.check import CheckSummary
from archec.audit.findings import Finding
from archec.audit.last_checked import Memory, memory_path
from archec.audit.verify import Scope, VerifySummary
from archec.store.journal import JournalBatch, read_batches
from archec.store.layout import journals

Edit = Callable[[list[JournalBatch]], list[JournalBatch]]


def write(path: Path, batches: list[JournalBatch], *, rehash: int) -> None:
    """Writes a finished journal again, with batches numbered from 1 on. The first ``rehash`` of them get the hash of
    what they hold now, each chained to what stands before it; the others keep their ends."""
    data, head = b"", batches[0].prev
    for n, batch in enumerate(batches, 1):
        body = b"".join(line + b"\n" for line in batch.lines)
        prev = head if n <= rehash else batch.prev
        body += b'{"type":"batch","n":%d,"lines":%d,"stamp":%d,"prev":"%s"' % (
            n, len(batch.lines), batch.stamp, prev.encode()
        )  # fmt: skip
        head = hashlib.sha256(body).hexdigest()
        assert n <= rehash or head == batch.sha256
        data += body + b',"sha256":"%s"}\n' % head.encode()
    rewrite(path, gzip.compress(data, mtime=0))


def edited(batch: JournalBatch) -> JournalBatch:
    """Another software is said to have written it: nothing else in the archive contradicts that."""
    lines = [line.replace(b'"software":"', b'"software":"x') for line in batch.lines]
    assert lines != batch.lines
    return batch._replace(lines=lines)


def runs_of(world: World) -> list[int]:
    return [journal.tist for journal in journals(world.layout)]


def batches_of(world: World, run: int) -> tuple[Path, list[JournalBatch]]:
    path = next(journal.path for journal in journals(world.layout) if journal.tist == run)
    return path, list(read_batches(path))


def looked_at(world: World) -> list[tuple[CheckSummary | VerifySummary, list[Finding]]]:
    """What check and verify say; neither changes the archive folder."""
    before = tree(world.config.store_path)
    both: list[tuple[CheckSummary | VerifySummary, list[Finding]]] = [checked(world), verified(world)]
    assert tree(world.config.store_path) == before
    return both


def expect(world: World, run: int, *words: str, also: list[str] | None = None) -> None:
    """Both find that the chain is broken in this run's journal, and nothing else but ``also``; check may add that it
    could not compare the catalogue with such journals, or where they differ."""
    path = f"runs/{run}.jsonl.gz"
    for summary, findings in looked_at(world):
        assert not summary.clean
        others = {"not-compared", "catalogue-differs"} if isinstance(summary, CheckSummary) else set()
        found = [code for code in codes(findings) if code not in others - set(also or ())]
        assert found == sorted(["journal-chain", *(also or [])]), [str(finding) for finding in findings]
        (finding,) = (finding for finding in findings if finding.code == "journal-chain")
        assert (finding.path, finding.wrong) == (path, True)
        for word in words:
            assert word in finding.message


@pytest.fixture
def middle(world: World) -> int:
    """A run with at least three batches that is neither the first nor the last."""
    return int(Path(world.places["journal"]).name.partition(".")[0])


def test_a_batch_that_is_edited_and_hashed_again(world: World, middle: int) -> None:
    path, batches = batches_of(world, middle)
    write(path, [edited(batches[0]), *batches[1:]], rehash=1)
    expect(world, middle, "after batch 1", "batch 2 does not follow batch 1", also=["not-compared"])


def test_a_journal_that_is_edited_and_hashed_again(world: World, middle: int) -> None:
    """It is sound in itself: the next run's journal tells."""
    path, batches = batches_of(world, middle)
    write(path, [edited(batches[0]), *batches[1:]], rehash=len(batches))
    runs = runs_of(world)
    following = runs[runs.index(middle) + 1]
    expect(world, following, f"batch 1 of run {following}", f"batch {len(batches)} of run {middle}")


def test_the_last_journal_edited_and_hashed_again(world: World) -> None:
    """Nothing follows it: the catalogue tells."""
    last = runs_of(world)[-1]
    path, batches = batches_of(world, last)
    write(path, [edited(batches[0]), *batches[1:]], rehash=len(batches))
    expect(world, last, f"batch {len(batches)} of run {last}", "catalogue")


def test_a_batch_that_is_removed(world: World, middle: int) -> None:
    path, batches = batches_of(world, middle)
    assert len(batches) > 2
    data = gzip.decompress(path.read_bytes())
    rewrite(path, gzip.compress(data[: batches[1].offset] + data[batches[2].offset :]))
    expect(world, middle, "after batch 1", "batch 3 does not follow batch 1", also=["not-compared"])


def test_batches_that_are_swapped(world: World, middle: int) -> None:
    path, batches = batches_of(world, middle)
    data = gzip.decompress(path.read_bytes())
    starts = [batch.offset for batch in batches] + [len(data)]
    one, two, three = (data[starts[n] : starts[n + 1]] for n in range(3))
    rewrite(path, gzip.compress(one + three + two + data[starts[3] :]))
    expect(world, middle, "after batch 1", "batch 3 does not follow batch 1", also=["not-compared"])


def test_a_last_batch_that_is_removed(world: World, middle: int) -> None:
    path, batches = batches_of(world, middle)
    data = gzip.decompress(path.read_bytes())
    rewrite(path, gzip.compress(data[: batches[-1].offset]))
    runs = runs_of(world)
    following = runs[runs.index(middle) + 1]
    expect(world, following, f"batch 1 of run {following}", f"batch {len(batches) - 1} of run {middle}")


def test_a_journal_that_is_missing(world: World, middle: int) -> None:
    """Where the catalogue was made without it, too, only the chain tells; its files are named by nobody."""
    world.path("journal").unlink()
    runs = runs_of(world)
    following = next(run for run in runs if run > middle)
    for _, findings in looked_at(world):
        assert {"journal-missing", "journal-chain"} <= set(codes(findings))
    (world.config.base / "data" / "catalogue.sqlite").unlink()
    for summary, findings in looked_at(world):
        assert not summary.clean
        assert "journal-chain" in codes(findings, f"runs/{following}.jsonl.gz")


def test_a_first_journal_that_is_missing(world: World) -> None:
    first, second = runs_of(world)[:2]
    (world.layout.runs / f"{first}.jsonl.gz").unlink()
    for _, findings in looked_at(world):
        (finding,) = (finding for finding in findings if finding.code == "journal-chain")
        assert finding.path == f"runs/{second}.jsonl.gz"
        assert f"batch 1 of run {second} does not follow the beginning of the archive" in finding.message


def test_a_little_at_a_time(world: World, middle: int) -> None:
    """A verification that reads one of two journals knows the end of the other from before."""
    verified(world, scope=Scope(share=0.01))
    with Memory(memory_path(world.config)) as memory:
        assert sorted(memory.journals()) == runs_of(world)
    path, batches = batches_of(world, middle)
    write(path, [edited(batches[0]), *batches[1:]], rehash=len(batches))
    found: list[Finding] = []
    for _ in range(40):
        found += verified(world, scope=Scope(share=0.01))[1]
    assert set(codes(found)) == {"journal-chain"}


def test_a_rewritten_journal_is_not_replaced_by_the_copy(world: World, pristine: World, middle: int) -> None:
    """Which of two sound journals is the right one is for people to say."""
    path, batches = batches_of(world, middle)
    write(path, [edited(batches[0]), *batches[1:]], rehash=1)
    before = tree(world.config.store_path)
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert not summary.clean
    assert any("not repaired" in finding.message for finding in findings if finding.code == "journal-chain")
    assert tree(world.config.store_path) == before


def test_a_journal_that_comes_back_closes_the_chain(world: World, tmp_path: Path) -> None:
    copy = clone(world, tmp_path / "copy")
    world.path("journal").unlink()
    summary, findings = verified(world, copy=copy.config.store_path)
    assert (summary.clean, codes(findings)) == (True, ["journal-missing"])
    assert checked(world)[1] == []


@pytest.mark.parametrize("form", ["plain, torn", "compressed"])
def test_a_journal_whose_end_is_missing_comes_back(world: World, pristine: World, middle: int, form: str) -> None:
    """As where only the part is left that was copied during the run."""
    good = checked(pristine)[0].names
    path, batches = batches_of(world, middle)
    data = gzip.decompress(path.read_bytes())[: batches[-1].offset]
    if form == "compressed":
        rewrite(path, gzip.compress(data))
    else:
        path.unlink()
        path.with_suffix("").write_bytes(data + b'{"type":"obi"')
    summary, findings = verified(world, copy=pristine.config.store_path)
    (finding,) = (finding for finding in findings if finding.code == "journal-damaged")
    assert finding.message == "its end is missing, as only the chain of batches shows"
    assert finding.fixed.startswith("repaired from ")
    assert (summary.clean, checked(world)[1], checked(world)[0].names) == (True, [], good)


def test_all_journals_come_back_with_their_directory(world: World, pristine: World) -> None:
    good = tree(world.config.store_path)
    shutil.rmtree(world.layout.runs)
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert (summary.clean, codes(findings)) == (True, ["journal-missing"] * len(runs_of(pristine)))
    assert tree(world.config.store_path) == good
    assert checked(world)[1] == []


def test_a_journal_of_which_only_the_chain_knows_comes_back(world: World, pristine: World, served: str) -> None:
    """The catalogue has gone with it. One that leads elsewhere is not taken."""
    good, names = tree(world.config.store_path), runs_of(world)
    for gone in (names[:1], names[1:3]):
        for run in gone:
            (world.layout.runs / f"{run}.jsonl.gz").unlink()
        (world.config.base / "data" / "catalogue.sqlite").unlink()
        assert archec_inline(world.config, "verify", "--repair-from", pristine.config.store_path).code == 1
        assert archec_inline(world.config, "check", "--fix").code == 6
        summary, findings = verified(world, copy=served, scope=Scope(share=1.0))
        told = [finding for finding in findings if finding.code.startswith("journal-")]
        assert summary.clean, [str(finding) for finding in findings]
        assert [(one.code, one.path) for one in told] == [("journal-missing", f"runs/{run}.jsonl.gz") for run in gone]
        assert all(one.fixed == f"repaired from {served[:-1]}" for one in told)
        assert tree(world.config.store_path) == good
        assert checked(world)[1] == []


@pytest.mark.parametrize("form", [".jsonl", ".jsonl.gz"])
def test_a_journal_without_batches_is_replaced(world: World, pristine: World, middle: int, form: str) -> None:
    """It can be read to its end, so that only the chain shows what it lacks."""
    good, path = tree(world.config.store_path), world.path("journal")
    path.unlink()
    empty = gzip.compress(b"") if form.endswith("gz") else b""
    path.with_name(f"{middle}{form}").write_bytes(empty)
    summary, findings = verified(world, copy=pristine.config.store_path)
    assert (summary.clean, codes(findings)) == (True, ["journal-damaged"]), [str(finding) for finding in findings]
    assert "has no batches" in findings[0].message
    assert tree(world.config.store_path) == {**good, f"quarantine/runs/{middle}{form}": hashlib.md5(empty).hexdigest()}
    assert checked(world)[1] == []


def test_a_journal_that_does_not_lead_on_is_not_taken(world: World, pristine: World, tmp_path: Path) -> None:
    copy = clone(pristine, tmp_path / "copy")
    run = runs_of(world)[1]
    for one in (world, copy):
        (one.config.base / "data" / "catalogue.sqlite").unlink()
    (world.layout.runs / f"{run}.jsonl.gz").unlink()
    path, batches = batches_of(copy, run)
    write(path, [edited(batches[0]), *batches[1:]], rehash=len(batches))
    assert archec_inline(world.config, "check", "--fix").code == 6
    before = tree(world.config.store_path)
    summary, findings = verified(world, copy=copy.config.store_path)
    (finding,) = (finding for finding in findings if finding.code == "journal-chain")
    assert "not repaired: the copy has no journals that lead" in finding.message
    assert not summary.clean
    assert tree(world.config.store_path) == before


def test_commands_name_run_and_batch(world: World, middle: int) -> None:
    path, batches = batches_of(world, middle)
    write(path, [edited(batches[0]), *batches[1:]], rehash=len(batches))
    runs = runs_of(world)
    following = runs[runs.index(middle) + 1]
    for command in ("check", "verify"):
        done = archec_inline(world.config, command, "--json")
        assert done.code == 6
        found = [json.loads(line) for line in done.out.splitlines()]
        (finding,) = (value for value in found if value.get("finding") == "journal-chain")
        assert finding["path"] == f"runs/{following}.jsonl.gz"
        assert f"batch 1 of run {following}" in finding["message"]
