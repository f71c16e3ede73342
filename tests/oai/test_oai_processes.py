"""Several server processes over one archive: tokens, restarts, one index, runs meanwhile, archives that change."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from oai_support import checked, code, texts

import archec
from archec.config import Config, load
from archec.demo.show import make_archive
from archec.gather.run import Options, gather
from archec.progress import Meter

WAIT = 30.0


def publish(config: Config, *numbers: int, series: str = "aaa:wpaper") -> None:
    """A data set with these papers, gathered."""
    archive, _, name = series.partition(":")
    place = config.data_path / archive / name
    place.mkdir(parents=True, exist_ok=True)
    text = "\n".join(
        f"Template-Type: ReDIF-Paper 1.0\nTitle: Paper {n}\nAuthor-Name: A. Uthor\nHandle: RePEc:{series}:{n}\n"
        for n in numbers
    )
    (place / "a.rdf").write_text(text, encoding="ascii")
    gather(config, Options(fetch=False, accept=frozenset(["all"])), Meter())


@pytest.fixture
def config(memory_path: Path) -> Config:
    """An archive of thirty papers, in pages of seven."""
    folder = memory_path / "archive"
    made = make_archive(folder)
    file = folder / "config.yaml"
    text = file.read_text(encoding="utf-8").replace("numOfRecords: 100\n", "numOfRecords: 7\n")
    file.write_text(text.replace("repositoryIdentifier: ''", "repositoryIdentifier: archive.example.org"))
    publish(made, *range(30))
    return load(file, environ={})


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(archec.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}


@contextmanager
def process(config: Config) -> Iterator[str]:
    """``archec serve`` as a process; its base URL, as soon as it can be harvested."""
    command = [sys.executable, "-m", "archec", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=config.base, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        told = []
        for line in server.stderr:
            told.append(line)
            if "serving" in line:
                break
        try:
            url = next((line.split()[-1] for line in told if "serving" in line), "")
            assert url, "".join(told)
            retrying(f"{url}?verb=ListIdentifiers&metadataPrefix=oai_dc")
            yield url
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=WAIT)
        assert server.returncode == 0


def until(what: str) -> Iterator[None]:
    """Goes on until the caller has seen ``what``, or too much time has passed."""
    end = time.monotonic() + 4 * WAIT
    while time.monotonic() < end:
        yield
    raise AssertionError(f"timed out: {what}")


def retrying(url: str) -> httpx.Response:
    """The answer, once it is not 503: the index is being made, or the server starts."""
    transport = httpx.HTTPTransport(retries=5)
    with httpx.Client(trust_env=False, transport=transport, timeout=WAIT) as client:
        for _ in until("no 503 any more"):
            answer = client.get(url)
            if answer.status_code != 503:
                assert answer.status_code == 200
                return answer
    raise AssertionError


def page(url: str, **arguments: str) -> tuple[list[str], str]:
    """The identifiers of a page, and its token."""
    root = checked(retrying(f"{url}?{urlencode({'verb': 'ListRecords', **arguments})}").content)
    assert code(root) == ""
    return texts(root, ".//o:header/o:identifier"), str(root.findtext(".//{*}resumptionToken") or "")


def test_tokens_of_one_process_are_those_of_another_and_of_the_next(config: Config) -> None:
    with process(config) as one, process(config) as other:
        _, token = page(one, metadataPrefix="oai_dc")
        second = page(other, resumptionToken=token)
        assert page(one, resumptionToken=token)[0] == second[0]
        # A harvest that goes from one to the other at every page loses and doubles nothing.
        found, token = page(other, metadataPrefix="oai_dc")
        servers = [one, other]
        while token:
            servers.reverse()
            part, token = page(servers[0], resumptionToken=token)
            found += part
        assert len(found) == len(set(found)) == 30
        _, first = page(one, metadataPrefix="oai_dc")
        again = page(one, resumptionToken=first)
    with process(config) as after:
        assert page(after, resumptionToken=first)[0] == again[0]


def test_two_processes_see_a_run_alike(config: Config) -> None:
    with process(config) as one, process(config) as other:
        before = page(one, metadataPrefix="oai_dc")
        publish(config, *range(10, 40))  # ten are lost, ten are new
        found: dict[str, list[str]] = {}
        for url in (one, other):
            for _ in until("the run shows up"):
                root = checked(retrying(f"{url}?verb=ListRecords&metadataPrefix=oai_dc&set=archive:aaa").content)
                size = root.find(".//{*}resumptionToken").get("completeListSize")  # type: ignore[union-attr]
                if size == "40":
                    break
            headers, token = page(url, metadataPrefix="oai_dc")
            while token:
                part, token = page(url, resumptionToken=token)
                headers += part
            found[url] = headers
        assert found[one] == found[other]
        assert len(set(found[one])) == 40
        # The list that was begun before the run goes on where it was closed: what changed has left it.
        rest, token = page(other, resumptionToken=before[1])
        while token:
            root = checked(retrying(f"{one}?{urlencode({'verb': 'ListRecords', 'resumptionToken': token})}").content)
            rest += texts(root, ".//o:header/o:identifier")
            token = str(root.findtext(".//{*}resumptionToken") or "")
        assert not set(rest) & set(before[0])
        assert all(int(name.rpartition(":")[2]) < 30 for name in rest)


def refused(config: Config, why: str) -> None:
    """Checks that a server does not start, and says why."""
    done = subprocess.run(
        [sys.executable, "-m", "archec", "serve", "--port", "0"],
        cwd=config.base, env=environment(), capture_output=True, text=True, check=False, timeout=WAIT,
    )  # fmt: skip
    assert done.returncode not in (0, -signal.SIGTERM)
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_the_index_of_another_archive_is_refused(config: Config, memory_path: Path) -> None:
    with process(config):
        pass
    other = make_archive(memory_path / "other")
    publish(other, 1, 2, 3, series="zzz:wpaper")
    for name in ("oai.sqlite", "oai.secret"):
        shutil.copy(config.base / "data" / name, other.base / "data" / name)
    refused(other, "the OAI index belongs to another archive")


def test_the_catalogue_of_another_archive_is_refused(config: Config, memory_path: Path) -> None:
    other = make_archive(memory_path / "other")
    for name in config.base.joinpath("data").glob("catalogue.sqlite*"):
        shutil.copy(name, other.base / "data" / name.name)
    refused(other, "belongs to another archive: its runs have no journals here")


def test_a_catalogue_file_that_is_replaced_while_it_is_served(config: Config) -> None:
    file = config.base / "data" / "catalogue.sqlite"
    with process(config) as url:
        file.with_name("copy").write_bytes(file.read_bytes())
        file.with_name("copy").replace(file)
        answer = httpx.get(f"{url}?verb=ListIdentifiers&metadataPrefix=oai_dc", trust_env=False)
        assert (answer.status_code, "was replaced" in answer.text) == (503, True)
        assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.slow
def test_an_archive_that_was_restored(config: Config, memory_path: Path) -> None:
    """The folder is put back as it was before the last run; the index is not: it says so, and repairs itself."""
    copy = memory_path / "copy"
    shutil.copytree(config.base, copy, symlinks=True)
    publish(config, *range(20, 40))
    with process(config) as url:
        before = retrying(f"{url}?verb=Identify").content
    for name in ("archive", "data/catalogue.sqlite"):
        there, back = config.base / name, copy / name
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        shutil.copytree(back, there, symlinks=True) if back.is_dir() else shutil.copy(back, there)
    with process(config) as url:
        for _ in until("the index has repaired itself"):
            root = checked(retrying(f"{url}?verb=ListIdentifiers&metadataPrefix=oai_dc").content)
            token = root.find(".//{*}resumptionToken")
            headers = list(root.iterfind(".//{*}header"))
            while token is not None and token.text:
                query = urlencode({"verb": "ListIdentifiers", "resumptionToken": token.text})
                root = checked(retrying(f"{url}?{query}").content)
                if code(root):
                    break
                headers += root.iterfind(".//{*}header")
                token = root.find(".//{*}resumptionToken")
            states = {str(one.findtext("{*}identifier")): one.get("status") == "deleted" for one in headers}
            if sum(states.values()) == 10 and len(states) == 40:
                break
        assert {int(name.rpartition(":")[2]) for name, deleted in states.items() if deleted} == set(range(30, 40))
        assert texts(checked(retrying(f"{url}?verb=Identify").content), ".//o:earliestDatestamp") == texts(
            checked(before), ".//o:earliestDatestamp"
        )
