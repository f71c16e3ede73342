"""Seals and proofs of a real archive, and what an insider may try: each is found, by the chain or by a seal."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gather_support import Member, archec_inline, change, make, run, tarball, template

from archec.config import Config, load
from archec.errors import StorageFull
from archec.proof.journal_tree import hashed
from archec.proof.seal_file import read_seal
from archec.store.journal import JournalWriter, read_batches
from archec.store.layout import journals, open_layout
from archec.tist import parse_when

HANDLE = "RePEc:aaa:sss:1"


def texts(folder: Path, year: int, title: str, count: int = 3) -> Path:
    members = [Member(f"RePEc/aaa/sss/{n}.rdf", template(f"RePEc:aaa:sss:{n}", title).encode()) for n in range(count)]
    return tarball(folder / f"RePEc_{year}-01-01.tar", members)


@pytest.fixture
def archive(folder: Path) -> Config:
    """An archive of three runs that signs its seals; ``first.txt`` and ``last.txt`` are of the second and the third."""
    config = make(folder / "a", {"name": "The archive"})
    done = archec_inline(config, "seal", "--new-key", folder / "key")
    assert done.code == 0, done.err
    (folder / "key.pub").write_bytes(done.out)
    config = change(config, {"name": "The archive", "seal.key": str(folder / "key")})
    for year, title in ((2001, "One"), (2002, "Two"), (2003, "Three")):
        run(config, texts(folder, year, title))
        if year > 2001:
            name = "first.txt" if year == 2002 else "last.txt"
            assert archec_inline(config, "seal", "-o", folder / name).code == 0
    return config


def verified(config: Config, *seals: Path) -> list[dict[str, object]]:
    done = archec_inline(config, "verify", *(f"--seal={path}" for path in seals), "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == (6 if any(row["fault"] for row in rows) else 0), done
    return rows


def test_a_seal_is_a_signed_checkpoint(archive: Config, folder: Path) -> None:
    text = (folder / "last.txt").read_text()
    lines = text.split("\n")
    layout = open_layout(archive.store_path)
    plain = [batch.lines for journal in journals(layout) for batch in read_batches(journal.path)]
    assert lines[0] == "The-archive"
    assert int(lines[1]) == sum(map(len, plain))
    assert re.fullmatch(r"[A-Za-z0-9+/]{43}=", lines[2])
    assert lines[-2].startswith("\u2014 The-archive ")
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    sealed = read_seal(folder / "last.txt").seal
    *_, whole = hashed(layout)
    assert (whole.size, whole.seal("x", 0).root, whole.head) == (sealed.size, sealed.root, sealed.head)
    assert (sealed.runs, sealed.batches) == (3, len(plain))


def test_a_seal_reads_only_what_has_come_since(
    archive: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = archive.memory("sealed.json")
    before = (folder / "last.txt").read_text().split("\n")[:4]
    with monkeypatch.context() as patch:
        patch.setattr("archec.proof.journal_tree.read_batches", lambda path: pytest.fail(f"{path} is read again"))
        assert archec_inline(archive, "seal").out.decode().split("\n")[:4] == before
    for journal in journals(open_layout(archive.store_path))[:2]:
        aside = journal.path.rename(folder / "aside")
        done = archec_inline(archive, "seal")
        assert (done.code, done.out) == (6, b""), "what is gone is not sealed"
        journal.path.touch()
        assert archec_inline(archive, "seal").code == 6
        aside.rename(journal.path)
    for spoilt in (b"", b"{}", b'{"run":1,"batch":1,"size":3,"peaks":[]}', memory.parent.name.encode()):
        memory.chmod(0o644)
        memory.write_bytes(spoilt)
        assert archec_inline(archive, "seal").out.decode().split("\n")[:4] == before
    memory.unlink()
    memory.mkdir()
    done = archec_inline(archive, "seal")
    assert (done.code, done.out.decode().split("\n")[:4]) == (0, before)
    assert f"warning: {memory}" in done.err, "it goes on without"
    assert "writable" in done.err


def test_what_was_sealed_is_there_and_has_grown(archive: Config, folder: Path) -> None:
    one, two = verified(archive, folder / "first.txt", folder / "last.txt")
    assert (one["fault"], two["fault"], two["since"]) == ("", "", 0)
    assert one["since"] > 0
    assert one["signed_by"] == ["The-archive"]
    done = archec_inline(archive, "verify", "--seal", folder / "last.txt", "--all")
    assert (done.code, b"Checked" in done.out, b"unaltered" in done.out) == (0, True, True)
    unsigned = change(archive, {"name": "The archive"})
    assert verified(unsigned, folder / "last.txt")[0]["signed_by"] == []


def forge(config: Config, after: int, edit: Callable[[bytes], bytes]) -> None:
    """Rewrites all journals from number ``after`` on, consistently, as an insider with all rights may."""
    layout = open_layout(config.store_path)
    files = journals(layout)
    head = ""
    for journal in files[:after]:
        *_, last = read_batches(journal.path)
        head = last.sha256
    for journal in files[after:]:
        batches = list(read_batches(journal.path))
        journal.path.unlink()
        with JournalWriter(layout, journal.tist, head=head) as writer:
            for batch in batches:
                writer.append([edit(line) for line in batch.lines], batch.stamp)
            writer.finish()
            head = writer.head


def remove_catalogue(config: Config) -> None:
    for path in config.base.glob("data/catalogue.sqlite*"):
        path.unlink()


def test_a_consistent_rewriting_is_found_by_the_seal(archive: Config, folder: Path) -> None:
    forge(archive, 1, lambda line: line.replace(b"Two", b"Too"))
    assert archec_inline(archive, "rebuild").code == 6, "the catalogue knows another head"
    remove_catalogue(archive)
    assert archec_inline(archive, "rebuild").code == 0, "nothing but a seal can tell"
    one, two = verified(archive, folder / "first.txt", folder / "last.txt")
    assert "rewritten" in one["fault"]
    assert "rewritten" in two["fault"]
    forge(archive, 1, lambda line: line.replace(b"Too", b"Two"))
    assert [row["fault"] for row in verified(archive, folder / "first.txt", folder / "last.txt")] == ["", ""]
    forge(archive, 2, lambda line: line.replace(b"Three", b"Tree"))
    one, two = verified(archive, folder / "first.txt", folder / "last.txt")
    assert (one["fault"], bool(two["fault"])) == ("", True)


def test_truncation_and_a_fork_are_found_by_the_seal(archive: Config, folder: Path) -> None:
    last = journals(open_layout(archive.store_path))[-1]
    last.path.unlink()
    one, two = verified(archive, folder / "first.txt", folder / "last.txt")
    assert (one["fault"], "the journals end with" in str(two["fault"])) == ("", True)
    remove_catalogue(archive)
    assert archec_inline(archive, "rebuild").code == 0
    run(archive, texts(folder, 2004, "Another way"))
    one, two = verified(archive, folder / "first.txt", folder / "last.txt")
    assert one["fault"] == ""
    assert "have diverged" in str(two["fault"]) or "is not the one that was sealed" in str(two["fault"])
    assert archec_inline(archive, "prove", HANDLE, "--seal", folder / "last.txt").code == 6


def test_a_journal_that_is_edited_swapped_or_gone_breaks_the_chain(archive: Config, folder: Path) -> None:
    files = journals(open_layout(archive.store_path))
    for damage in ("edited", "swapped", "gone"):
        config = load(shutil.copytree(archive.base, folder / damage) / "config.yaml", environ={})
        mine = [config.store_path / "runs" / journal.path.name for journal in files]
        mine[1].chmod(0o644)
        if damage == "edited":
            plain = gzip.decompress(mine[1].read_bytes())
            mine[1].write_bytes(gzip.compress(plain.replace(b"Two", b"Too")))
        elif damage == "swapped":
            mine[1].write_bytes(files[0].path.read_bytes())
        else:
            mine[1].unlink()
        done = archec_inline(config, "verify", "--seal", folder / "last.txt")
        assert done.code == 6, damage
        assert "WRONG" in done.out.decode() + done.err or "damaged" in done.err, done


def test_a_seal_that_was_altered_or_signed_by_another(archive: Config, folder: Path) -> None:
    text = (folder / "last.txt").read_text()
    size = text.split("\n")[1]
    for forged in (text.replace(f"\n{size}\n", f"\n{int(size) - 1}\n"), text.split("\n\n")[0] + "\n\n"):
        (folder / "forged.txt").write_text(forged)
        (row,) = verified(archive, folder / "forged.txt")
        assert "no trusted key has signed it" in str(row["fault"])
    assert str(row["fault"]).endswith("it is unsigned")
    (folder / "no.txt").write_text("nothing")
    assert archec_inline(archive, "verify", "--seal", folder / "no.txt").code == 2


def test_keys_are_rotated(archive: Config, folder: Path) -> None:
    done = archec_inline(archive, "seal", "--new-key", folder / "second")
    assert archec_inline(archive, "seal", "--new-key", folder / "second").code == 2, "never overwritten"
    settings = {"name": "The archive", "seal.key": str(folder / "second")}
    config = change(archive, settings)
    assert "no trusted key" in str(verified(config, folder / "last.txt")[0]["fault"])
    config = change(archive, {**settings, "seal.keys": [(folder / "key.pub").read_text().strip()]})
    assert archec_inline(config, "seal", "-o", folder / "new.txt").code == 0
    assert [row["fault"] for row in verified(config, folder / "last.txt", folder / "new.txt")] == ["", ""]
    assert done.out.decode().strip() not in (folder / "key.pub").read_text()
    again = archec_inline(config, "seal", "-o", folder / "new.txt")
    assert (again.code, "already exists" in again.err) == (2, True)
    renamed = archec_inline(change(archive, {**settings, "seal.origin": "archive.example.org"}), "seal")
    assert (renamed.code, "set seal.origin to The-archive" in renamed.err) == (1, True)


# -- proofs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "title"), [("2001-06-01", "One"), ("2002-06-01", "Two"), (None, "Three")])
def test_a_proof_needs_no_archive(archive: Config, folder: Path, when: str | None, title: str) -> None:
    proof, content = folder / "x.tlog-proof", folder / "content"
    at = ["--at", when] if when else []
    done = archec_inline(archive, "prove", HANDLE, *at, "--seal", folder / "last.txt", "-o", proof)
    assert done.code == 0, done.err
    assert archec_inline(archive, "get", HANDLE, *at, "-o", content).code == 0
    assert proof.read_text().startswith("c2sp.org/tlog-proof@v1\nextra ")
    assert proof.read_text().endswith((folder / "last.txt").read_text())
    empty = folder / "empty"
    empty.mkdir()
    checked = archec_inline(None, "prove", "--check", proof, content, "--key", folder / "key.pub", "--json", cwd=empty)
    assert checked.code == 0, checked.err
    told = json.loads(checked.out)
    assert (told["id"], told["seal"]["signed_by"], told["seal"]["origin"]) == (HANDLE, ["The-archive"], "The-archive")
    assert told["content"] in told["put"].values()
    assert title.encode() in content.read_bytes()
    assert not list(empty.iterdir())
    no_key = archec_inline(None, "prove", "--check", proof, "--key", folder / "no.pub")
    assert (no_key.code, "there is no such file" in no_key.err) == (2, True)
    content.write_bytes(content.read_bytes() + b"\n")
    assert archec_inline(None, "prove", "--check", proof, content).code == 6


def test_a_proof_that_was_altered_proves_nothing(archive: Config, folder: Path) -> None:
    proof = folder / "x.tlog-proof"
    assert archec_inline(archive, "prove", HANDLE, "--seal", folder / "last.txt", "-o", proof).code == 0
    good = proof.read_bytes()
    assert archec_inline(None, "prove", "--check", proof).code == 0
    damaged = folder / "damaged.txt"
    for old, warned in (("archec-head", False), ("archec-hea", True)):
        damaged.write_text((folder / "last.txt").read_text().replace("archec-head", old))
        done = archec_inline(archive, "prove", HANDLE, "--seal", damaged)
        assert (done.code, f"warning: {damaged}" in done.err) == (0, warned)
    hour = good.index(b"T", good.index(b"archec-date ")) + 1
    for at in (hour, *range(0, len(good), 7)):
        bad = bytearray(good)
        bad[at] ^= 8 if at == hour else 1  # an hour such as 80, which is no date
        proof.write_bytes(bad)
        assert archec_inline(None, "prove", "--check", proof, "--key", folder / "key.pub").code == 6, at
        if good.index(b"\n\n") < at < good.rindex(b"\n\n"):  # nothing but the seal tells of all of them
            assert archec_inline(None, "prove", "--check", proof, "--seal", folder / "last.txt").code == 6, at
    proof.write_bytes(good)
    unchecked = archec_inline(None, "prove", "--check", proof)
    assert b"its signature was not checked: give --key, or compare it with --seal" in unchecked.out
    done = archec_inline(None, "prove", "--check", proof, "--seal", folder / "last.txt")
    assert (done.code, done.out.decode().endswith(f"lines; the same as {folder / 'last.txt'}\n")) == (0, True)
    assert archec_inline(None, "prove", "--check", proof, "--seal", folder / "first.txt").code == 6
    assert archec_inline(None, "prove", "--check", proof, "--since", folder / "first.txt").code == 2
    stranger = archec_inline(archive, "seal", "--new-key", folder / "stranger").out.decode().strip()
    assert archec_inline(None, "prove", "--check", proof, "--key", stranger).code == 6


def test_what_was_recorded_after_the_seal_is_not_proved(archive: Config, folder: Path) -> None:
    done = archec_inline(archive, "prove", HANDLE, "--seal", folder / "first.txt")
    assert (done.code, "after the seal was made" in done.err) == (7, True)
    done = archec_inline(archive, "prove", HANDLE, "--at", "1990-01-01", "--seal", folder / "first.txt")
    assert done.code == 7
    assert archec_inline(archive, "prove", HANDLE).code == 2
    assert archec_inline(archive, "prove", HANDLE, "--seal", folder / "first.txt", "--json").code == 2


def test_one_seal_grew_from_another(archive: Config, folder: Path) -> None:
    first, last, proof = folder / "first.txt", folder / "last.txt", folder / "growth"
    assert archec_inline(archive, "prove", "--since", first, "--seal", last, "-o", proof).code == 0
    done = archec_inline(None, "prove", "--check", proof, "--key", folder / "key.pub", "--json")
    told = json.loads(done.out)
    assert (told["proves"], told["old"]["signed_by"], told["new"]["signed_by"]) == (
        "growth", ["The-archive"], ["The-archive"],
    )  # fmt: skip
    assert told["old"]["size"] < told["new"]["size"]
    for one, other, wanted in ((first, last, 0), (last, last, 6), (first, first, 6)):
        assert archec_inline(None, "prove", "--check", proof, "--since", one, "--seal", other).code == wanted
    done = archec_inline(None, "prove", "--check", proof, "--seal", last, "--key", folder / "key.pub")
    assert done.out.decode().splitlines()[-1].endswith(f"signed by The-archive, the same as {last}")
    done = archec_inline(None, "prove", "--check", proof, "--seal", last)
    assert done.out.decode().splitlines()[-2].endswith("give --key, or compare it with --since")
    told = json.loads(archec_inline(archive, "seal", "--json").out)
    assert (told["signed"], str(told["lines"]) in told["seal"].splitlines()) == (True, True)
    done = archec_inline(archive, "prove", "--since", last, "--seal", first)
    assert (done.code, "swapped" in done.err) == (6, True)
    value = json.loads(proof.read_text())
    value["old"], value["new"] = value["new"], value["old"]
    proof.write_text(json.dumps(value))
    assert archec_inline(None, "prove", "--check", proof).code == 6


def test_a_seal_is_made_while_a_run_has_its_journal_open(archive: Config, folder: Path) -> None:
    last = journals(open_layout(archive.store_path))[-1]
    *_, batch = read_batches(last.path)
    with JournalWriter(open_layout(archive.store_path), last.tist + 5, head=batch.sha256) as journal:
        journal.append([b'{"type":"run","tist":%d}' % (last.tist + 5)], last.tist + 5)
        with journal.path.open("ab") as torn:
            torn.write(b'{"type":"obi"')
        assert archec_inline(archive, "seal", "-o", folder / "open.txt").code == 0
    before, now = read_seal(folder / "last.txt").seal, read_seal(folder / "open.txt").seal
    assert (now.size, now.runs, now.batch) == (before.size + 1, before.runs + 1, 1)


def restored(archive: Config) -> str:
    """Makes the archive folder what it was after the second run; the newest head, which the catalogue knows."""
    layout = open_layout(archive.store_path)
    *_, last = journals(layout)
    *_, batch = read_batches(last.path)
    last.path.unlink()
    shutil.rmtree(layout.root / layout.directory(parse_when("2003-01-01"), ""))
    return batch.sha256


def test_a_fork_is_declared_by_command_and_reason(archive: Config, folder: Path) -> None:
    """Until then what contradicts the catalogue is exit 6; afterwards a seal tells it from one that nobody declared."""
    head = restored(archive)
    another = ("gather", "-f", texts(folder, 2004, "Another way"))
    for command in (another, ("rebuild",)):
        done = archec_inline(archive, *command)
        assert (done.code, "archec fork" in done.err) == (6, True), done
    assert archec_inline(archive, "check").code == 6
    assert archec_inline(archive, "fork").code == 2, "a reason is needed"
    done = archec_inline(archive, "fork", "--reason", "the disk is lost", "--json")
    made = json.loads(done.out)
    assert (done.code, made["lost"]["sha256"], made["reason"]) == (0, head, "the disk is lost")
    assert made["kept"]["run"] < made["lost"]["run"] < made["run"], "tists increase from run to run"
    assert archec_inline(archive, *another).code == 0
    assert archec_inline(archive, "check").code == 0
    assert archec_inline(archive, "rebuild").code == 0
    first, last = verified(archive, folder / "first.txt", folder / "last.txt")
    assert (first["fault"], first["fork"]) == ("", None)
    assert last["fork"] == made
    runs = [json.loads(line) for line in archec_inline(archive, "runs", "--json").out.splitlines()]
    assert [(run["state"], run["message"]) for run in runs if run["kind"] == "fork"] == [("done", "the disk is lost")]
    again = archec_inline(archive, "fork", "--reason", "again")
    assert (again.code, "nothing is lost" in again.err, "'archec rebuild' completes" in again.err) == (2, True, True)


def test_a_fork_whose_catalogue_cannot_be_written_is_completed_by_rebuild(archive: Config, folder: Path) -> None:
    """As on a full disk: what is declared stands."""
    restored(archive)
    with pytest.MonkeyPatch.context() as patch:
        full = StorageFull("data/catalogue.sqlite: no space left", hint="free some space")
        patch.setattr("archec.catalogue.sqlite.SQLiteCatalogue.write", lambda *_: (_ for _ in ()).throw(full))
        done = archec_inline(archive, "fork", "--reason", "restored")
    assert done.code == 1
    assert "(free some space; the loss is declared, and 'archec rebuild' completes the fork)" in done.err
    another = ("gather", "-f", texts(folder, 2004, "Another way"))
    assert archec_inline(archive, "rebuild").code == 0
    for command in (("check",), ("verify",), another, ("check",)):
        assert archec_inline(archive, *command).code == 0
    dump = archec_inline(archive, "dump", "--all").out
    remove_catalogue(archive)
    assert archec_inline(archive, "rebuild").code == 0
    assert archec_inline(archive, "dump", "--all").out == dump


def test_a_fork_that_only_a_seal_knows_of(archive: Config, folder: Path) -> None:
    """The catalogue was restored, too. A seal from beyond what is declared stays a fault that nobody declared."""
    restored(archive)
    remove_catalogue(archive)
    assert archec_inline(archive, "fork", "--reason", "restored").code == 2
    assert archec_inline(archive, "fork", "--reason", "restored", "--seal", folder / "first.txt").code == 2
    assert verified(archive, folder / "last.txt")[0]["fork"] is None
    assert archec_inline(archive, "fork", "--reason", "restored", "--seal", folder / "last.txt").code == 0
    (verdict,) = verified(archive, folder / "last.txt")
    assert (bool(verdict["fault"]), verdict["fork"]["reason"]) == (True, "restored")  # type: ignore[index]
    assert "DECLARED" in archec_inline(archive, "verify", "--seal", folder / "last.txt").out.decode()


def test_a_fork_while_a_run_was_under_way(archive: Config, folder: Path) -> None:
    """The copy was made in the middle of a run: it counts as interrupted. A kill after declaring costs a rebuild."""
    layout = open_layout(archive.store_path)
    restored(archive)
    *_, open_one = journals(layout)
    batches = list(read_batches(open_one.path))
    open_one.path.unlink()
    with JournalWriter(layout, open_one.tist, head=batches[0].prev) as writer:
        writer.append(batches[0].lines[:2], batches[0].stamp)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("archec.proof.forking.rebuild", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert archec_inline(archive, "fork", "--reason", "restored").code == 130
    assert archec_inline(archive, "rebuild").code == 0
    assert archec_inline(archive, "gather", "-f", texts(folder, 2004, "Another way")).code == 0
    runs = [json.loads(line) for line in archec_inline(archive, "runs", "--json").out.splitlines()]
    assert [(run["kind"], run["state"]) for run in sorted(runs, key=lambda run: run["run"])][1:] == [
        ("gather", "interrupted"), ("fork", "interrupted"), ("gather", "done")
    ]  # fmt: skip
    first, last = verified(archive, folder / "first.txt", folder / "last.txt")
    assert (bool(first["fork"]), bool(last["fork"])) == (True, True)
