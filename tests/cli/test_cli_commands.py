"""The commands as a shell sees them: what they print, their exit codes, their one line for every error."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gather_support import ROOT, archec_inline, check, environment, make, run, tarball, temporary_files, write_papers
from gather_support import Member as TarMember
from gather_support import template as paper

from archec.config import Config
from archec.demo.papers import PAPERS
from archec.demo.site import DemoSite
from archec.errors import Exit
from archec.tist import iso


def complaints(err: str) -> list[str]:
    """What stands on stderr, but for the line for machines that a run writes last."""
    lines = err.splitlines()
    return lines[:-1] if lines and lines[-1].startswith("archec-run {") else lines


@pytest.fixture(scope="module")
def urls(demo: Config) -> dict[str, str]:
    """The demo's URLs by what happens to them."""
    text = (demo.data_path / "dmo/wpaper/2009.rdf").read_text()
    base = re.search(r"File-URL: (http://[^/]+)/", text)
    assert base is not None
    return {word: f"{base[1]}{p.path}" for p in PAPERS for word in ("revised", "goes away", "chain") if word in p.story}


# -- history ------------------------------------------------------------------------------------------


def history(config: Config, obi: str) -> dict[str, object]:
    done = archec_inline(config, "history", obi, "--json")
    assert (done.code, complaints(done.err)) == (0, []), done
    value = json.loads(done.out)
    assert isinstance(value, dict)
    return value


INCIDENCE = {
    "tist", "time", "kind", "how", "md5", "sha256", "size", "path", "redirects", "status", "final_status", "type",
    "reason", "suspect", "last_seen",
}  # fmt: skip


def test_history_of_a_template(demo: Config) -> None:
    value = history(demo, "RePEc:dmo:wpaper:2011-11")
    assert set(value) == {"id", "kind", "held", "incidences", "last_seen"}
    assert (value["id"], value["kind"], value["held"]) == ("RePEc:dmo:wpaper:2011-11", "tobi", True)
    incidences = value["incidences"]
    assert isinstance(incidences, list)
    assert [i["kind"] for i in incidences] == ["appeared", "lost", "returned"]
    for i in incidences:
        assert set(i) == INCIDENCE
        assert i["time"] == iso(i["tist"])
        assert (i["md5"] is None) == (i["sha256"] is None) == (i["path"] is None) == (i["kind"] == "lost")
        if i["path"]:
            data = (demo.store_path / i["path"]).read_bytes()
            assert (hashlib.md5(data).hexdigest(), len(data)) == (i["md5"], i["size"])
            assert hashlib.sha256(data).hexdigest() == i["sha256"]
    assert incidences[1]["reason"]


def test_history_of_files(demo: Config, urls: dict[str, str]) -> None:
    value = history(demo, urls["revised"])
    assert set(value) == {"id", "kind", "held", "incidences", "last_seen", "visit", "due"}
    assert [i["kind"] for i in value["incidences"]] == ["appeared", "changed"]  # type: ignore[attr-defined]
    value = history(demo, urls["goes away"])
    assert [i["kind"] for i in value["incidences"]] == ["appeared", "lost"]  # type: ignore[attr-defined]
    assert value["held"] is False
    done = archec_inline(demo, "get", urls["goes away"])
    until = value["incidences"][1]["tist"] - 1  # type: ignore[index]
    assert (done.code, f"'archec get --at {until}' gives what was held until then" in done.err) == (7, True)
    assert archec_inline(demo, "get", urls["goes away"], "--at", str(until)).out.startswith(b"%PDF")
    value = history(demo, value["incidences"][0]["path"])  # type: ignore[index]
    assert value["id"] == urls["goes away"]
    value = history(demo, urls["chain"])
    assert value["incidences"][0]["redirects"] == [  # type: ignore[index]
        [urls["chain"] + "/latest", 302], [urls["chain"].replace("/go/5", "/papers/tolls.pdf"), 301],
    ]  # fmt: skip
    assert (value["incidences"][0]["status"], value["incidences"][0]["final_status"]) == (302, 200)  # type: ignore[index]


def test_history_for_people(demo: Config, urls: dict[str, str]) -> None:
    done = archec_inline(demo, "history", urls["chain"])
    text = done.out.decode()
    assert text.startswith(urls["chain"] + "\n")
    assert "HTTP 302 -> 200" in text
    assert "-> " in text
    assert "last visit" in text
    done = archec_inline(demo, "history", "RePEc:dmo:wpaper:2011-11")
    assert "lost: no longer in " in done.out.decode()


@pytest.mark.parametrize(
    "spelling",
    [
        "RePEc:dmo:wpaper:2011-11", "repec:DMO:WPAPER:2011-11", " RePEc:dmo:wpaper:2011-11\t",
        "REPEC: dmo : wpaper:2011-11",
    ],
)  # fmt: skip
def test_spellings_of_handles(demo: Config, spelling: str) -> None:
    assert history(demo, spelling)["id"] == "RePEc:dmo:wpaper:2011-11"
    assert archec_inline(demo, "get", spelling).out.startswith(b"Template-Type:")


def test_spellings_of_urls(demo: Config, urls: dict[str, str]) -> None:
    url = urls["revised"]
    host, _, path = url.removeprefix("http://").partition("/")
    for spelling in (
        url, f"HTTP://{host}/{path}", f" {url} ", f"{url}#page=2", f"http://user:pw@{host}/{path}",
        f"http://{host}/x/../{path}", f"http://{host}/./{path}", url.replace("ferries", "f%65rries"), url + "/",
    ):  # fmt: skip
        assert history(demo, spelling)["id"] == url, spelling
        assert archec_inline(demo, "get", spelling).out.startswith(b"%PDF")


@pytest.mark.parametrize(
    ("obi", "code"),
    [
        ("RePEc:xyz:none:1", 7), ("http://127.0.0.1/never-heard-of", 7), ("", 2), ("RePEc:", 2), ("http://", 2),
        ("http://[", 2), ("nonsense", 7), ("\u2013", 7), ("http://h/\ud800", 7), ("a" * 10_000, 7), ("a" * 100_000, 2),
    ],
)  # fmt: skip
def test_what_is_not_there(demo: Config, obi: str, code: int) -> None:
    for command in (["history"], ["get"], ["history", "--json"]):
        done = archec_inline(demo, *command, os.fsdecode(obi.encode("utf-8", "surrogatepass")))
        assert (done.code, done.out) == (code, b""), done
        assert len(complaints(done.err)) == 1
        assert done.err.startswith("archec: ")


# -- get ----------------------------------------------------------------------------------------------


def test_get_at_a_time(demo: Config, urls: dict[str, str], folder: Path) -> None:
    incidences = history(demo, urls["revised"])["incidences"]
    assert isinstance(incidences, list)
    for i in incidences:
        for when in (str(i["tist"]), i["time"], i["time"].replace("T", " ").replace("Z", " +0000")):
            done = archec_inline(demo, "get", urls["revised"], "--at", when)
            assert done.code == 0, done.err
            assert hashlib.sha256(done.out).hexdigest() == i["sha256"]
            assert str(i["tist"]) in done.err
    first = incidences[0]["tist"]
    done = archec_inline(demo, "get", urls["revised"], "--at", first - 1)
    assert (done.code, done.out) == (7, b"")
    assert "it was first found" in done.err
    assert archec_inline(demo, "get", urls["revised"], "--at", "1999").code == 7
    assert archec_inline(demo, "get", urls["goes away"]).code == 7
    assert archec_inline(demo, "get", urls["goes away"], "--at", first).code == 0
    assert archec_inline(demo, "get", urls["revised"], "--at", "not a date").code == 2
    done = archec_inline(demo, "get", urls["revised"] + "!/data.csv")
    assert (done.code, done.out, len(complaints(done.err))) == (7, b"", 1), done.err
    target = folder / "x.pdf"
    done = archec_inline(demo, "get", urls["revised"], "-o", target)
    assert (done.code, done.out) == (0, b"")
    assert hashlib.sha256(target.read_bytes()).hexdigest() == incidences[-1]["sha256"]
    assert archec_inline(demo, "get", urls["revised"], "-o", folder / "no/such/folder").code == 1


def test_get_follows_redirects(demo: Config, urls: dict[str, str]) -> None:
    done = archec_inline(demo, "get", urls["chain"])
    assert done.out.startswith(b"%PDF")
    assert "tolls.pdf" in done.err


# -- gather, rebuild, dump ----------------------------------------------------------------------------

REPORT = {
    "run", "run_time", "state", "message", "data_set", "files", "templates", "tobis", "held_back", "fobis", "fetch",
    "hosts", "not_judged", "resumed", "stored_bytes", "totals", "problems", "seconds",
}  # fmt: skip


def test_the_report(folder: Path) -> None:
    config = make(folder / "archive")
    with DemoSite() as site:
        from archec.demo.papers import write_data_set

        write_data_set(config.data_path, 1, site.base_url)
        done = archec_inline(config, "gather", "--json")
        assert done.code == 0
        assert [line.split()[0] for line in done.err.splitlines()] == ["archec-run"]
        value = json.loads(done.out)
        assert set(value) == REPORT
        assert set(value["data_set"]) == {"tist", "time", "kind", "source", "whole", "complete", "merged"}
        assert set(value["files"]) == {"read", "unreadable", "bytes", "other", "others"}
        assert set(value["templates"]) == {"total", "by_type", "without_handle", "duplicates", "conflicts"}
        assert set(value["tobis"]) == {
            "new", "changed", "cosmetic", "file-url", "returned", "same", "moved", "withheld", "lost",
            "held_back",
        }  # fmt: skip
        assert set(value["fetch"]) == {"requests", "bytes", "deferred", "reasons"}
        assert set(value["problems"]) == {"by_code", "first"}
        assert set(value["problems"]["first"][0]) == {"path", "line", "code", "message"}
        assert set(value["seconds"]) == {"templates", "files"}
        assert value["templates"]["by_type"] == {"ReDIF-Archive": 1, "ReDIF-Paper": 13, "ReDIF-Series": 1}
        table = archec_inline(config, "gather").out.decode()
    assert "15 same" in table
    assert value["problems"]["by_code"] == {"bad-url": 1}
    check(config)


def test_rebuild(demo: Config, folder: Path) -> None:
    whole = archec_inline(demo, "dump", "--all").out
    done = archec_inline(demo, "rebuild", "--json", "--database", f"sqlite:///{folder}/other.sqlite")
    value = json.loads(done.out)
    assert set(value) == {
        "database", "batches", "tobis_held", "tobis_lost", "fobis_held", "fobis_lost", "fobis_never",
        "filesets_held", "filesets_lost",
    }  # fmt: skip
    other = archec_inline(demo, "dump", "--all", env={"ARCHEC_DATABASE": f"sqlite:///{folder}/other.sqlite"})
    assert other.out == whole
    assert archec_inline(demo, "rebuild").code == 0
    assert archec_inline(demo, "dump", "--all").out == whole


def test_dump(demo: Config) -> None:
    for arguments in ([], ["--all"], ["--json"]):
        done = archec_inline(demo, "dump", *arguments)
        assert (done.code, complaints(done.err)) == (0, [])
        values = [json.loads(line) for line in done.out.splitlines()]
        assert all("id" in value and "collection" in value for value in values)
        mi = [value["id"] for value in values if value["collection"] == "mi"]
        assert mi == sorted(mi)
        assert len(mi) == 15


# -- exit codes and errors ----------------------------------------------------------------------------


def test_the_table_of_exit_codes() -> None:
    """The manual, the help and the code know the same codes."""
    manual = ROOT / "docs/operations.md"
    told = {int(m[1]) for m in re.finditer(r"^\| (\d+) \|", manual.read_text(encoding="utf-8"), re.M)}
    assert told == {int(code) for code in Exit}
    text = archec_inline(None, "--help").out.decode().partition("Exit codes:")[2]
    assert {int(n) for n in re.findall(r"\d+", text)} == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nmae: x\n", "name"),
        ("fetch:\n  concurency: 3\n", "fetch.concurrency"),
        ("workers: many\n", "workers"),
        ("workers: -1\n", "workers"),
        ("max_loss: 200%\n", "max_loss"),
        ("fetch: 3\n", "fetch"),
        ("fetch:\n  robots: perhaps\n", "robots"),
        ("fetch:\n  allow_networks: [nonsense]\n", "allow_networks"),
        ("- a\n- list\n", "config.yaml"),
        ("name: [\n", "config.yaml:"),
        ("name: \x00\n", "config.yaml"),
        ("object_store: nowhere\n", "nowhere"),
        ("object_store: ''\n", "must be a path"),
        ("ReDIF_directory: nowhere\n", "nowhere"),
        ("database: sqlite:///no/such/folder/x.sqlite\n", "no/such/folder"),
        ("database: oracle://x/y\n", "oracle"),
        ("work_directory: config.yaml\n", "config.yaml"),
        ("max_size: 5\n", "max_size"),
    ],
)
def test_a_wrong_configuration_is_one_line(folder: Path, text: str, told: str) -> None:
    config = make(folder / "archive")
    (config.base / "config.yaml").write_text(text)
    done = archec_inline(config, "gather", "--no-fetch", "--json")
    assert (done.code, done.out) == (1, b""), done
    assert len(complaints(done.err)) == 1, done.err
    assert told in done.err


def test_no_configuration(folder: Path) -> None:
    done = archec_inline(None, "gather", cwd=folder)
    assert done.code == 1
    assert "archec init" in done.err
    done = archec_inline(None, "gather", "--config", folder / "none.yaml")
    assert (done.code, len(complaints(done.err))) == (1, 1)
    (folder / "config.yaml").write_bytes(b"\xff\xfe\0")
    assert archec_inline(None, "gather", cwd=folder).code == 1
    (folder / "config.yaml").unlink()
    (folder / "config.yaml").mkdir()
    assert archec_inline(None, "gather", cwd=folder).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["gather", "--no-such-option"], ["gather", "--max-files", "0"], ["gather", "--max-files", "x"],
        ["gather", "--max-bytes", "much"], ["gather", "--max-time", "long"], ["gather", "--as-of", "some day"],
        ["gather", "--as-of", "2999-01-01"], ["gather", "--accept-losses", "a b"], ["no-such-command"], ["history"],
        ["init", "a", "b"], ["init", "--fanout", "3"],
    ],
)  # fmt: skip
def test_usage(folder: Path, arguments: list[str]) -> None:
    make(folder)
    done = archec_inline(None, *arguments, cwd=folder)
    assert done.code == 2, done
    assert "Traceback" not in done.err


def test_the_environment_names_the_configuration(demo: Config, folder: Path) -> None:
    config = str(demo.base / "config.yaml")
    done = archec_inline(None, "history", "RePEc:dmo", cwd=folder, env={"ARCHEC_CONFIG": config})
    assert done.code == 0


def test_a_file_that_is_not_there(demo: Config, folder: Path) -> None:
    done = archec_inline(demo, "gather", "-f", folder / "RePEc_2001-01-01.tar.gz", "--no-fetch")
    assert (done.code, len(complaints(done.err))) == (1, 1)


# -- pipes --------------------------------------------------------------------------------------------


def test_a_reader_that_leaves(folder: Path) -> None:
    """Before the first line, or after it: that is no error."""
    config = make(folder / "archive")
    texts = [paper(f"RePEc:aaa:sss:{n}") for n in range(3000)] + [paper("RePEc:aaa:sss:big", "x" * 1_000_000)]
    run(config, tarball(folder / "RePEc_2001-01-01.tar", [TarMember("RePEc/aaa/sss/p.rdf", "\n".join(texts).encode())]))
    for at_once, arguments in (
        (False, ["dump"]), (False, ["get", "RePEc:aaa:sss:big"]), (False, ["changes"]),
        (True, ["coverage"]), (True, ["history", "RePEc:aaa:sss:1"]),
    ):  # fmt: skip
        command = [sys.executable, "-m", "archec", *arguments, "--config", str(config.base / "config.yaml")]
        read, write = os.pipe()
        child = subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, env=environment())
        os.close(write)
        assert at_once or os.read(read, 10)
        os.close(read)
        _, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (0, b""), arguments


def test_interrupted_before_it_begins(demo: Config) -> None:
    command = [sys.executable, "-m", "archec", "dump", "--all", "--config", str(demo.base / "config.yaml")]
    read, write = os.pipe()
    with open(read, "rb"):
        child = subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, env=environment())
        os.close(write)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode in (130, -signal.SIGTERM, 0)


# -- init ---------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(folder: Path) -> Path:
    return folder / "new" / "archive of mine"


def test_init_then_gather(fresh: Path) -> None:
    done = archec_inline(None, "init", fresh)
    assert (done.code, complaints(done.err)) == (0, [])
    assert {path.name for path in fresh.iterdir()} == {"config.yaml", "archive", "data"}
    done = archec_inline(None, "gather", cwd=fresh)
    (warning,) = complaints(done.err)
    assert (done.code, "contains no template files" in warning) == (0, True), done
    done = archec_inline(None, "gather", "--no-fetch", "--json", cwd=fresh)
    assert json.loads(done.out)["templates"]["total"] == 0
    done = archec_inline(None, "dump", cwd=fresh)
    assert (done.code, done.out) == (0, b"")
    for arguments in ([], ["--fanout", "256"]):
        done = archec_inline(None, "init", fresh, *arguments)
        assert done.code in (1, 2)
        assert "already" in done.err
    from archec.config import load

    config = load(fresh / "config.yaml", environ={})
    write_papers(config, [])
    (config.data_path / "aaa/sss/papers.rdf").write_text(paper("RePEc:aaa:sss:1"))
    assert archec_inline(config, "gather", "--no-fetch").code == 0
    assert archec_inline(config, "get", "RePEc:aaa:sss:1").out.decode() == paper("RePEc:aaa:sss:1")
    assert temporary_files(config) == []
    check(config)


def test_init_with_fanout_and_database(fresh: Path) -> None:
    done = archec_inline(None, "init", fresh, "--fanout", "256", "--database", "sqlite:///data/other.sqlite")
    assert done.code == 0, done.err
    assert archec_inline(None, "gather", cwd=fresh).code == 0
    assert (fresh / "data/other.sqlite").exists()


def test_a_current_directory_that_was_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := folder / "gone").mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    for command in (("init", "x"), ("init",), ("redif", "x.rdf"), ("check-tarball", "x.tar")):
        done = archec_inline(None, *command)
        assert (done.code, complaints(done.err)) == (1, ["archec: the current directory: No such file or directory"])


def test_init_refuses_the_catalogue_of_another_archive(demo: Config, fresh: Path) -> None:
    database = f"sqlite:///{demo.base / 'data' / 'catalogue.sqlite'}"
    done = archec_inline(None, "init", fresh, "--database", database)
    assert done.code == 2
    assert "holds the catalogue of another archive" in done.err
    assert "set another 'database'" in done.err
    assert not fresh.exists()


def test_init_uses_the_database_that_the_environment_names(
    demo: Config, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHEC_DATABASE", f"sqlite:///{demo.base / 'data' / 'catalogue.sqlite'}")
    done = archec_inline(None, "init", fresh)
    assert (done.code, "holds the catalogue of another archive" in done.err) == (2, True)
    assert not fresh.exists()
    monkeypatch.setenv("ARCHEC_DATABASE", "sqlite:///elsewhere.sqlite")
    assert archec_inline(None, "init", fresh).code == 0
    assert [path.name for path in fresh.rglob("*.sqlite")] == ["elsewhere.sqlite"]
    assert "elsewhere" not in (fresh / "config.yaml").read_text()


def test_init_that_failed_can_be_repeated(fresh: Path) -> None:
    fresh.mkdir(parents=True)
    (fresh / "data").write_text("in the way")
    assert archec_inline(None, "init", fresh).code == 1
    (fresh / "data").unlink()
    assert archec_inline(None, "init", fresh).code == 0
    assert archec_inline(None, "check", cwd=fresh).code == 0


def test_init_where_it_cannot(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    for place in (folder / "file", folder / "file" / "below"):
        done = archec_inline(None, "init", place)
        assert done.code in (1, 2), done
        assert "Traceback" not in done.err


def test_a_fault_of_the_machine_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    config = make(folder)
    write_papers(config, ["http://127.0.0.1:1/x.pdf"])
    monkeypatch.setattr("archec.web.pool.selectors.DefaultSelector", refused)
    done = archec_inline(config, "gather")
    message, last = done.err.splitlines()[-2:]
    assert (done.code, message) == (1, "archec: this machine: Too many open files (allow more open files (ulimit -n))")
    assert json.loads(last.removeprefix("archec-run "))["message"] in message
