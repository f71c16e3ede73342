"""Whole ingests, against a platform on loopback."""

from __future__ import annotations

import asyncio
import copy
import gzip
import hashlib
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from failpoint import killed_at
from fileset_platform import Behaviour, Handler, Platform, broken_at_quarters, bytes_of, playing, zenodo
from fileset_samples import DATAVERSE
from fileset_support import Filesets, make_archive
from gather_support import archec_inline
from web_ftpserver import FtpServer

from archec.access.obi_source import OwnSource
from archec.access.query import arguments, parse_query
from archec.access.rows import as_json
from archec.access.sources import Errors
from archec.archive.budget import Budget
from archec.archive.lookup import find, held_at
from archec.archive.opening import rebuild
from archec.archive.unfinished_downloads import left_parts
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.cli.history import history
from archec.errors import Exit, StorageFailed, StorageFull, UsageError
from archec.fileset import asking, download, run
from archec.fileset.context import IngestOptions
from archec.fileset.json_lines import IngestResult
from archec.fileset.lookup import all_filesets, find_fileset, read_manifest
from archec.fileset.model import IngestRequest, IngestStrategy
from archec.fileset.run import due_requests, exit_code, run_ingest
from archec.gather.due import due_files
from archec.monitor.metrics import metrics_of
from archec.monitor.runs import runs
from archec.monitor.status import Due, status
from archec.progress import Meter
from archec.store.durable import Disk
from archec.store.layout import open_store
from archec.store.lock import RunLock
from archec.store.writer import Stored, Temp
from archec.tist import parse_when

ID = "fileset:zenodo:127.0.0.1%3A{port}:6"


def fileset_id(platform: Platform) -> str:
    return ID.format(port=platform.server_port)


def held(filesets: Filesets, url: str) -> bytes:
    with filesets.archive() as archive:
        found = held_at(archive, find(archive.catalogue, url), 10**11)
        with found.open(archive.layout) as stream:
            return stream.read()


def test_a_data_set_is_kept_with_its_manifest_page_and_answers(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"data/p.csv": 5000, "empty.txt": 0})
    (result,) = filesets.ingest(url)
    assert (result.status, result.hit, result.message) == ("success", True, None)
    assert (result.platform_name, result.platform_id, result.platform_domain) == ("zenodo", "7", platform.host)
    assert (result.file_count, result.total_size, result.ingest_strategy) == (2, 5000, "web-fileset")
    assert result.fileset == fileset_id(platform) + "@7"
    first = (result.manifest or [])[0]
    data = bytes_of("data/p.csv", 5000)
    assert (first.md5, first.sha1, first.sha256) == tuple(
        hashlib.new(kind, data).hexdigest() for kind in ("md5", "sha1", "sha256")
    )
    assert (first.status, first.extra) == ("success", {"file_id": "data/p.csv", "safe_path": "data/p.csv"})
    assert held(filesets, first.platform_url or "") == data
    assert held(filesets, f"{platform.url}/records/7") == platform.bodies["/records/7"]
    assert json.loads(held(filesets, f"{platform.url}/api/records/7"))["id"] == 7
    manifest = json.loads(held(filesets, fileset_id(platform)))
    assert [file["sha256"] for file in manifest["manifest"]] == [file.sha256 for file in result.manifest or ()]
    assert result.terminal is not None
    assert result.terminal["terminal_url"] == url
    assert (result.file_meta or {})["mimetype"] == "text/html"
    assert (result.cdx, result.revisit_cdx) == (row_of_the_access_layer(filesets, url), None)
    assert result.html_biblio == {"title": "Prices 7", "contrib_names": ["Doe, J."]}


def row_of_the_access_layer(filesets: Filesets, url: str) -> dict[str, Any]:
    with filesets.archive() as archive:
        query = parse_query(arguments(urlencode({"url": url, "output": "json"}).encode()))
        (rows,) = OwnSource("own", archive).parts(query, Errors())
        (row,) = (json.loads(as_json(row)) for row in rows)
    return {name: value for name, value in row.items() if not name.startswith("source")}


def test_what_is_fetched_again_and_is_the_same_is_a_revisit(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    (first, _) = filesets.ingest(url)
    (again, file) = filesets.ingest(url, force=True)
    assert first.fileset_file is not None
    assert again.fileset_file is not None
    assert again.cdx == first.cdx
    where = f"{platform.url}/api/records/7/files/p/content"
    assert again.fileset_file.cdx == first.fileset_file.cdx == row_of_the_access_layer(filesets, where)
    for part in (again, again.fileset_file, file):
        cdx, revisit = part.cdx or {}, part.revisit_cdx or {}
        assert (revisit["mime"], revisit["digest"]) == ("warc/revisit", cdx["digest"])
        assert revisit["timestamp"] > cdx["timestamp"]


def test_a_second_time_the_platform_is_asked_once_and_nothing_is_fetched(
    filesets: Filesets, platform: Platform
) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    (first,) = filesets.ingest(url)
    filesets.asked()
    (again,) = filesets.ingest(url)
    assert (again.status, again.hit) == ("success-existing", True)
    assert filesets.asked() == ["/api/records/7"]
    assert [file.sha256 for file in again.manifest or ()] == [file.sha256 for file in first.manifest or ()]
    assert (again.terminal, again.html_biblio) == (first.terminal, first.html_biblio)
    with filesets.archive() as archive:
        (page,) = (path for path in archive.layout.root.rglob("*records%2F7") if "api" not in path.name)
    page.chmod(0o600)
    page.write_bytes(page.read_bytes().replace(b"Prices", b"Pricks"))
    (damaged,) = filesets.ingest(url)
    assert (damaged.status, damaged.terminal, damaged.html_biblio) == ("success-existing", None, None)
    assert again.fileset == first.fileset
    (forced,) = filesets.ingest(url, force=True)
    assert forced.status == "success"
    with filesets.archive() as archive:
        assert len(find(archive.catalogue, fileset_id(platform)).history) == 1


def test_a_data_set_of_one_file_gives_a_second_result(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p.csv": 10})
    result, file = filesets.ingest({"base_url": url, "ingest_type": "dataset", "link_source": "doi"})
    assert (result.status, result.ingest_strategy) == ("success-file", "web-file")
    assert result.fileset_file is not None
    assert (file.ingest_type, file.status) == ("dataset-file", "success")
    assert file.file_meta == result.fileset_file.file_meta
    (existing,) = filesets.ingest(url)
    assert (existing.status, existing.fileset_file) == ("success-existing", result.fileset_file)
    assert result.request == {"base_url": url, "ingest_type": "dataset", "link_source": "doi"}


def test_a_new_version_is_a_new_state_and_an_older_one_is_not_the_present_one(
    filesets: Filesets, platform: Platform
) -> None:
    filesets.ingest(zenodo(platform, 8, {"p": 10, "q": 30}))
    filesets.asked()
    older = filesets.ingest(zenodo(platform, 7, {"p": 10}))[0]
    assert older.status == "success-file"
    assert not any("/files/" in path for path in filesets.asked()), "the bytes are held already"
    filesets.ingest(zenodo(platform, 9, {"p": 10, "q": 31}))
    assert states(filesets) == ["7", "8", "9"]


def test_bytes_that_were_committed_a_moment_ago_are_not_fetched_again(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_PACE", (1, 5.0))
    filesets = make_archive(folder, platform, fetch={"concurrency": 1})
    (result,) = filesets.ingest(zenodo(platform, 7, {"p": 0, "q": 0, "r": 3}))
    assert [file.status for file in result.manifest or ()] == ["success", "exists", "success"]
    assert [path[-9:] for path in filesets.asked() if "/files/" in path] == ["p/content", "r/content"]


def test_several_versions_in_one_run_are_all_states(filesets: Filesets, platform: Platform) -> None:
    results = filesets.ingest(*(zenodo(platform, number, {"p": 10, "q": number}) for number in (7, 9)))
    assert [result.status for result in results] == ["success"] * 2
    platform.bodies["/api/records/9"] = 410
    filesets.ingest(zenodo(platform, 10, {"p": 10}), zenodo(platform, 11, {"q": 11}), f"{platform.url}/records/9")
    assert states(filesets) == ["7", "9", "10", "11"]
    for size in (6, 7):
        result = filesets.ingest(zenodo(platform, 10, {"p": size}))[0]
        with filesets.archive() as archive:
            noted_last = find_fileset(archive, f"{fileset_id(platform)}@10").manifest.manifest[0]
        assert (result.status, noted_last.size) == ("success-file", size), "no second is left between the versions"
    assert filesets.ingest(zenodo(platform, 10, {"p": 6}))[0].status == "success-file", "it is as it was before"
    for number, gap in ((20, 1), (30, 2)):
        url = zenodo(platform, number, {"p": 10, "q": 5}, concept=number - 1)
        for _ in range(1 + gap):
            filesets.ingest(url)
        filesets.ingest(zenodo(platform, number + 1, {"p": 11}, concept=number - 1))
        for sizes in ({"p": 10}, {"p": 10, "q": 5}, {"q": 5}):
            zenodo(platform, number, sizes, concept=number - 1)
            assert [filesets.ingest(url)[0].status for _ in "ab"][1] == "success-existing", (gap, sizes)
    noted = lines_of(filesets, "changes", "--kind", "fileset")
    assert {line["what"] for line in noted} == {"new", "changed"}, "nothing was lost in between"
    assert states(filesets)[-1] == "11"
    platform.bodies["/api/records/11"] = 410
    filesets.ingest(f"{platform.url}/records/11")
    assert states(filesets)[-2:] == ["11", None]
    for command in ("check", "verify"):
        assert archec_inline(filesets.config, command).code == 0


def test_what_lacks_is_taken_up_by_the_next_ingest(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    where = "/api/records/7/files/q/content"
    good = platform.files.pop(where)
    (partial,) = filesets.ingest(url)
    assert (partial.status, partial.hit) == ("success-partial", False)
    assert [file.status for file in partial.manifest or ()] == ["success", "error-platform-download"]
    platform.files[where] = good
    filesets.asked()
    (whole,) = filesets.ingest(url)
    assert whole.status == "success"
    assert [path for path in filesets.asked() if "/files/" in path] == [where]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda data: data[:-1], "error-platform-download"),
        (lambda data: data + b"x", "error-platform-download"),
        (lambda data: b"x" * len(data), "mismatch-md5"),
    ],
)
def test_bytes_that_are_not_what_the_manifest_says_are_not_kept(
    filesets: Filesets, platform: Platform, change: Any, status: str
) -> None:
    url = zenodo(platform, 7, {"p": 1000})
    where = "/api/records/7/files/p/content"
    platform.files[where] = change(platform.files[where])
    (result,) = filesets.ingest(url)
    assert result.status in (status, "mismatch-size")
    assert [line for line in filesets.dump() if line["collection"] == "mf"] == []
    assert not list(Path(filesets.config.store_path).rglob("*.part"))


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"<!DOCTYPE html><html><body>Log in</body></html>", "text/csv"), (b"Please log in.", "text/html; charset=UTF-8")],
)
def test_a_page_in_place_of_a_file_is_no_file(
    filesets: Filesets, platform: Platform, body: bytes, kind: str
) -> None:
    url = zenodo(platform, 7, {"p.csv": 10})
    row = platform.bodies["/api/records/7"]["files"][0]
    row["size"] = row["checksum"] = None
    where = "/api/records/7/files/p.csv/content"
    platform.behaviours[where] = lambda handler, data: handler.answer(200, body, **{"content-type": kind})
    (result,) = filesets.ingest(url)
    assert (result.status, result.message) == (
        "error-platform-download", "p.csv: received a page instead of the file",
    )  # fmt: skip
    assert ((result.manifest or [])[0].extra or {})["received"] == "text/html"


def test_a_download_that_breaks_off_at_every_quarter_goes_on(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 400_000})
    where = "/api/records/7/files/p/content"
    platform.behaviours[where] = broken_at_quarters
    result = filesets.ingest(url)[0]
    assert result.status == "success-file", result.message
    assert platform.sent[where] == 400_000


def test_the_type_of_a_file_that_breaks_off_within_its_signature_is_known(
    filesets: Filesets, platform: Platform
) -> None:
    url, where = zenodo(platform, 7, {"p": 12}), "/api/records/7/files/p/content"
    platform.files[where] = b"%PDF-1.4\n%%\n"
    platform.bodies["/api/records/7"]["files"][0]["checksum"] = ""
    platform.behaviours[where] = broken_at_quarters
    result = filesets.ingest(url)[0]
    assert (result.status, (result.manifest or [])[0].mimetype) == ("success-file", "application/pdf"), result.message


def test_a_download_that_goes_on_too_slowly_ends(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_GRACE", 0.0)
    filesets = make_archive(folder, platform, fetch={"min_rate": "1GB"})
    url, where = zenodo(platform, 7, {"p": 400_000}), "/api/records/7/files/p/content"
    platform.behaviours[where] = broken_at_quarters
    assert filesets.ingest(url)[0].status == "error-platform-download"
    assert platform.sent[where] == 200_000, "one retry"
    monkeypatch.setattr(download, "_GRACE", 30.0)
    assert filesets.ingest(url)[0].status == "success-file"
    assert platform.sent[where] == 400_000


def cut(handler: Handler, data: bytes, **headers: str) -> None:
    """Half of a file, as the whole of it."""
    handler.close_connection = True
    handler.answer(200, data[: len(data) // 2], **{"content-length": str(len(data)), **headers})


def rest(handler: Handler, data: bytes, last: int = 0, **headers: str) -> None:
    start = len(data) // 2
    last = last or len(data) - 1
    handler.answer(206, data[start : last + 1], **{"content-range": f"bytes {start}-{last}/{len(data)}", **headers})


OLD, NEW = b"0123456789" * 20, b"abcdefghij" * 20
A, B = {"etag": '"a"'}, {"etag": '"b"'}
DATED = {"etag": '"\xe9"', "last-modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
WHOLE: Behaviour = lambda handler, data: handler.answer(200, NEW, **B)  # noqa: E731
NO_RANGE: Behaviour = lambda handler, data: handler.answer(416, b"")  # noqa: E731
CUT: Behaviour = lambda handler, data: cut(handler, data, **A)  # noqa: E731
GZIP = {"content-encoding": "gzip", **A}


def endless(handler: Handler, data: bytes) -> None:
    """A whole file that does not come to its end."""
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.send_header("etag", A["etag"])
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
    handler.close_connection = True


def no_more(size: int, **headers: str) -> Behaviour:
    """The answer to a range that begins at the end of a file of this size."""
    return lambda handler, data: handler.answer(416, b"", **{"content-range": f"bytes */{size}", **headers})


RANDOM = random.Random(7).randbytes(300_000)
PACKED = gzip.compress(RANDOM, mtime=0)


@pytest.mark.parametrize(
    ("sent", "meant", "status", "encoding"),
    [
        (PACKED, RANDOM, "success-file", "gzip"),
        (gzip.compress(OLD[:100], mtime=0) + gzip.compress(OLD[100:], mtime=0), OLD, "success-file", "gzip"),
        (PACKED, PACKED, "success-file", None),
        (PACKED, bytes(300_000), "mismatch-size", None),
        (gzip.compress(bytes(10**7), mtime=0), RANDOM, "mismatch-size", None),
        (PACKED[:-9], RANDOM, "mismatch-size", None),
        (OLD, RANDOM, "mismatch-size", None),
    ],
    ids=["packed", "members", "meant", "other", "bomb", "cut", "plain"],
)
def test_a_file_that_came_compressed_is_what_the_manifest_says(
    filesets: Filesets, platform: Platform, sent: bytes, meant: bytes, status: str, encoding: str | None
) -> None:
    url = zenodo(platform, 7, {"p": 10})
    row = platform.bodies["/api/records/7"]["files"][0]
    row |= {"size": len(meant), "checksum": f"md5:{hashlib.md5(meant).hexdigest()}"}
    where = "/api/records/7/files/p/content"
    platform.behaviours[where] = lambda handler, data: handler.answer(200, sent, **GZIP)
    (result, *_) = filesets.ingest(url)
    (file,) = result.manifest or ()
    assert (result.status, (file.extra or {}).get("content_encoding")) == (status, encoding), result.message
    if result.hit:
        assert held(filesets, platform.url + where) == meant
        with filesets.archive() as archive:
            note = list(find(archive.catalogue, platform.url + where).notes.values())[-1]
        assert dict(note.headers).get("content-encoding") == (None if encoding else "gzip")
        assert filesets.ingest(url)[0].status == "success-existing"
    assert not list(filesets.config.store_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("answers", "kept", "asked"),
    [
        ([CUT, lambda handler, data: rest(handler, data, **A)], OLD, 2),
        ([CUT, lambda handler, data: rest(handler, NEW, **B), WHOLE], NEW, 3),
        ([CUT, lambda handler, data: rest(handler, data[:-10]), WHOLE], NEW, 3),
        ([CUT, lambda handler, data: rest(handler, data, 150), WHOLE], NEW, 3),
        ([CUT, no_more(100), WHOLE], NEW, 3),
        ([endless, no_more(200)], OLD, 2),
        ([endless, no_more(200, **A)], OLD, 2),
        ([endless, no_more(200, **B), WHOLE], NEW, 3),
        ([endless, no_more(201), WHOLE], NEW, 3),
        ([CUT, WHOLE], NEW, 2),
        ([CUT, lambda handler, data: rest(handler, data, **GZIP), WHOLE], NEW, 3),
        ([lambda handler, data: cut(handler, data, **GZIP), lambda handler, data: rest(handler, data, **GZIP)], OLD, 2),
        ([lambda handler, data: cut(handler, data, **GZIP), lambda handler, data: rest(handler, data)], OLD, 2),
        ([CUT, NO_RANGE] * 9, None, 4),
        ([lambda handler, data: cut(handler, data, **DATED), lambda handler, data: rest(handler, data)], OLD, 2),
    ],
)  # fmt: skip
def test_only_the_rest_of_the_same_file_continues_it(
    filesets: Filesets, platform: Platform, answers: list[Behaviour], kept: bytes | None, asked: int
) -> None:
    left = iter(answers)
    platform.files["/f"] = OLD
    platform.behaviours["/f"] = lambda handler, data: next(left)(handler, data)
    data = {"@type": "Dataset", "distribution": [{"contentUrl": "/f"}]}
    platform.bodies["/data"] = f'<script type="application/ld+json">{json.dumps(data)}</script>'.encode()
    result = filesets.ingest(f"{platform.url}/data")[0]
    assert result.status == ("success-file" if kept else "error-platform-download"), result.message
    assert platform.requests.count("/f") == asked
    if kept:
        assert held(filesets, f"{platform.url}/f") == kept


def test_parts_that_make_another_file_are_fetched_as_a_whole(filesets: Filesets, platform: Platform) -> None:
    """The server says that the range is of the same file, with the same ETag and size, but it is not."""
    url = zenodo(platform, 7, {"p": 200})
    where = "/api/records/7/files/p/content"
    answers = iter([CUT, lambda handler, data: rest(handler, NEW), Handler.serve])
    platform.behaviours[where] = lambda handler, data: next(answers)(handler, data)
    (result, _) = filesets.ingest(url)
    assert (result.status, result.message) == ("success-file", None)
    asked = zip(platform.requests, platform.headers, strict=True)
    assert [headers.get("range") for path, headers in asked if path == where] == [None, "bytes=100-", None]


def test_a_file_that_is_closed_while_the_run_is_cancelled_is_kept(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = zenodo(platform, 7, {"p": 1_200_000})
    close, one, closed, running = Temp.close, run._one, [], []

    async def noted(*given: Any) -> IngestResult:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await one(*given)

    def slow(temp: Temp, *, sync: bool = False) -> Stored:
        if temp.size > 1_000_000:
            closed.append(sync)
            (loop, task) = running[0]
            loop.call_soon_threadsafe(task.cancel)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result()
        return close(temp, sync=sync)

    monkeypatch.setattr(run, "_one", noted)
    monkeypatch.setattr(Temp, "close", slow)
    with pytest.raises(asyncio.CancelledError):
        filesets.ingest(url)
    monkeypatch.undo()
    assert closed == [True]
    assert filesets.ingest(url)[0].status == "success-file"
    assert sum(platform.sent.values()) == 1_200_000


def test_a_server_that_hangs_costs_its_own_file_only(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 100, "q": 100})

    def hang(handler: Handler, data: bytes) -> None:
        handler.head(data)
        handler.wfile.flush()
        handler.connection.recv(1)  # until the client gives up

    platform.behaviours["/api/records/7/files/q/content"] = hang
    (result,) = filesets.ingest(url)
    assert result.status == "success-partial"
    assert [file.status for file in result.manifest or ()] == ["success", "error-platform-download"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(404, "platform-404"), (410, "platform-gone"), (403, "platform-restricted"), (500, "platform-http-error"),
     ([], "platform-error"), ({"id": 7, "files": "x"}, "platform-error"), ({"id": 8}, "platform-scope")],
)  # fmt: skip
def test_what_stands_in_the_way_is_the_status(
    filesets: Filesets, platform: Platform, body: object, status: str
) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.bodies["/api/records/7"] = body
    (result,) = filesets.ingest(url)
    assert (result.status, result.hit, result.platform_name) == (status, False, "zenodo")
    names = result.platform_domain, result.platform_id, result.platform_base_url
    assert names == (platform.host, "7", url), "what is known by the URL"
    assert (result.message or "").startswith((f"{url}: ", f"{platform.url}/api/records/7: "))


def test_the_page_of_a_data_set_that_its_platform_does_not_have_is_captured(
    filesets: Filesets, platform: Platform
) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.bodies["/api/records/7"] = 404
    (result,) = filesets.ingest(url)
    assert (result.status, result.html_biblio) == ("platform-404", {"title": "Prices 7", "contrib_names": ["Doe, J."]})
    assert result.terminal is not None
    assert held(filesets, url) == platform.bodies["/records/7"]


def test_what_was_withdrawn_is_lost(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    filesets.ingest(url)
    platform.bodies["/api/records/7"] = 410
    assert filesets.ingest(url)[0].status == "platform-gone"
    assert held(filesets, f"{platform.url}/api/records/7") == b'{"message": "so it is"}', "the tombstone is kept"
    with filesets.archive() as archive:
        assert not find(archive.catalogue, fileset_id(platform)).history.held


def test_a_fileset_was_last_seen_when_its_platform_listed_it_last(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    record = platform.bodies["/api/records/7"]
    filesets.ingest(url)

    def last() -> dict[str, Any]:
        return dict(json.loads(archec_inline(filesets.config, "history", fileset_id(platform), "--json").out))

    noted = last()["last_seen"]
    filesets.ingest(url)
    listed = last()["last_seen"]
    assert listed > noted
    for answer in (500, 410):
        assert last()["last_seen"] == listed
        platform.bodies["/api/records/7"] = answer
        filesets.ingest(url)
    assert (last()["held"], last()["last_seen"], last()["incidences"][-1]["last_seen"]) == (False, listed, listed)
    platform.bodies["/api/records/7"] = record
    filesets.ingest(url)
    assert last()["last_seen"] > listed


def states(filesets: Filesets) -> list[str | None]:
    """The versions that were held one after the other; None where it was lost."""
    with filesets.archive() as archive:
        obi = find(archive.catalogue, fileset_id(filesets.platform))
        return [state and read_manifest(archive, obi, tist).version for tist, state in obi.history]


def test_what_was_withdrawn_and_is_there_again_is_held_again(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    filesets.ingest(url)
    record = platform.bodies["/api/records/7"]
    platform.bodies["/api/records/7"] = 410
    (gone,) = filesets.ingest(url)
    assert gone.due, "it is asked for again"
    platform.bodies["/api/records/7"] = record
    (lost,) = lines_of(filesets, "lost")
    assert (lost["kind"], lost["title"]) == ("fileset", "Prices 7")
    assert "withdrawn" in lost["reason"]
    assert [filesets.ingest(url)[0].status for _ in range(2)] == ["success-existing"] * 2
    assert states(filesets) == ["7", None, "7"]
    assert lines_of(filesets, "lost") == lines_of(filesets, "lost", "--returned", "--archive", "aaa") == []
    assert [line["kind"] for line in lines_of(filesets, "lost", "--returned")] == ["fileset"]
    incidences = lines_of(filesets, "changes", "--kind", "fileset")
    assert [line["what"] for line in incidences] == ["new", "lost", "returned"]
    assert len(lines_of(filesets, "changes")) > len(incidences)
    platform.bodies["/api/records/7"] = 410
    filesets.ingest(url)
    with filesets.archive() as archive:
        (row,) = all_filesets(archive)
        tists = find(archive.catalogue, row["id"]).history.tists
    assert (row["versions"], row["held"], row["noted"]) == (1, False, tists[2]), "a loss is not noted"


def lines_of(filesets: Filesets, *command: str) -> list[dict[str, Any]]:
    """What a command prints as JSON lines."""
    return [json.loads(line) for line in archec_inline(filesets.config, *command, "--json").out.splitlines()]


def test_what_failed_last_does_not_hide_what_is_held(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    filesets.ingest(url)
    platform.bodies["/api/records/7"]["files"][0]["checksum"] = "md5:" + "0" * 32
    assert filesets.ingest(url)[0].status == "mismatch-md5"
    with filesets.archive() as archive:
        assert find_fileset(archive, url).manifest.manifest[0].status == "success"
    platform.bodies["/api/records/7"] = 410
    filesets.ingest(url)
    assert states(filesets) == ["7", None]


def test_an_older_version_that_is_withdrawn_is_no_loss_of_the_present_one(
    filesets: Filesets, platform: Platform
) -> None:
    urls = [zenodo(platform, number, {"p": 10, "q": number}) for number in (7, 9)]
    filesets.ingest(*urls)
    platform.bodies["/api/records/7"] = 410
    assert filesets.ingest(urls[0])[0].status == "platform-gone"
    assert states(filesets) == ["7", "9"]
    platform.bodies["/api/records/9"] = 410
    filesets.ingest(urls[1])
    assert states(filesets) == ["7", "9", None]


def test_what_is_held_stays_due_whatever_its_platform_answers(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    filesets.ingest(url)
    for body in (b"<html>Log in</html>", 404):
        platform.bodies["/api/records/7"] = body
        assert filesets.ingest(url)[0].due
    platform.bodies["/api/records/9"] = b"<html>Log in</html>"
    assert filesets.ingest(f"{platform.url}/records/9")[0].due is None


def test_limits_refuse_before_anything_is_fetched(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {f"f{n}": 10 for n in range(3)})
    (result,) = filesets.ingest(url, max_files=2)
    assert (result.status, result.file_count, len(result.manifest or ())) == ("too-many-files", 3, 3)
    assert (result.terminal or {})["terminal_url"] == url, "the landing page is captured always"
    (result,) = filesets.ingest(url, max_total=29)
    assert (result.status, result.total_size) == ("too-large-size", 30)
    assert not any("/files/" in path for path in filesets.asked())
    assert filesets.ingest(url, max_files=3, max_total=30)[0].status == "success"


def test_what_arrives_of_files_of_unknown_size_counts(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 3000, "q": 3000, "r": 3000})
    for row in platform.bodies["/api/records/7"]["files"]:
        row["size"] = row["checksum"] = None
    (result,) = filesets.ingest(url, max_total=6000)
    assert result.status == "success-partial"
    assert sorted(file.status or "" for file in result.manifest or ()) == ["success", "success", "too-large-size"]
    (result,) = filesets.ingest(url, max_total=9000)
    assert (result.status, result.total_size) == ("success", 9000)


def test_other_checksums_and_guestbooks_of_dataverse(folder: Path, platform: Platform) -> None:
    platforms = {"dataverse": {"hosts": [platform.host], "rate": "none"}}
    filesets = make_archive(folder, platform, fileset={"platforms": platforms})
    body = copy.deepcopy(DATAVERSE)
    rows = body["data"]["latestVersion"]["files"]
    for number, row in enumerate(rows):
        data = platform.files[f"/api/access/datafile/{number}"] = bytes_of(f"f{number}", 100)
        sha512 = hashlib.sha512(data if number else b"another").hexdigest()
        row["restricted"], row["dataFile"] = False, {
            "id": number, "filename": f"f{number}", "filesize": 100, "checksum": {"type": "SHA-512", "value": sha512},
        }  # fmt: skip
    asked = b'{"message": "You may not download this file without the required Guestbook response."}'
    platform.behaviours["/api/access/datafile/2"] = lambda handler, data: handler.answer(400, asked)
    platform.bodies["/api/datasets/:persistentId/"] = body
    url = f"{platform.url}/dataset.xhtml?persistentId=doi:10.7910/DVN/ABCDEF"
    (result,) = filesets.ingest(url)
    assert [file.status for file in result.manifest or ()] == ["mismatch", "success", "platform-restricted"]

    def days(*until: str | None) -> float:
        """Days until the next ingest, with files under embargoes until these dates, and restricted ones."""
        body["data"]["latestVersion"]["files"] = [rows[1], *(
            {"restricted": date is None, "dataFile": rows[0]["dataFile"], "embargo": date and {"dateAvailable": date}}
            for date in until
        )]  # fmt: skip
        (result,) = filesets.ingest(url)
        assert result.status == "success-partial"
        due = datetime.fromisoformat((result.due or "").replace("Z", "+00:00"))  # for Python 3.10
        return (due - datetime.now(timezone.utc)).total_seconds() / 86400

    def after(count: int) -> str:
        return (datetime.now(timezone.utc) + timedelta(count)).date().isoformat()

    assert 98 < days(after(100), after(200)) <= 100
    assert 148 < days(after(150), after(200)) <= 150, "what the platform says now"
    assert 6.9 < days(after(100), None) < 7.1
    assert 364 < days("2999-01-01") < 366, "there may be a new version before"


def test_a_host_that_asks_for_a_long_wait_is_asked_no_more(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {f"f{n}": 10 for n in range(30)})

    def busy(handler: Handler, data: bytes) -> None:
        handler.answer(429, b"", **{"retry-after": "86400"})

    platform.behaviours |= dict.fromkeys(platform.files, busy)
    (result,) = filesets.ingest(url)
    assert result.status == "error-platform-download"
    assert "asks to wait" in (result.message or "")
    assert sum("/files/" in path for path in platform.requests) <= 8, "those that are in progress at once"


def test_only_the_host_that_asks_for_a_wait_is_given_it(filesets: Filesets, platform: Platform) -> None:
    urls = [zenodo(platform, number, {f"p{number}": 10}, concept=number + 100) for number in (7, 8, 9)]
    first = "/api/records/7/files/p7/content"
    waits = ["3600"]

    def busy(handler: Handler, data: bytes) -> None:
        if waits:
            handler.answer(503, b"", **{"retry-after": waits.pop(), "x-ratelimit-remaining": "0"})
        else:
            handler.serve(data)

    with playing() as node:
        node.files["/p"], node.behaviours["/p"] = platform.files[first], busy
        platform.redirects[first] = f"{node.url}/p?expires=soon"
        failed, *others = (one for one in filesets.ingest(*urls) if one.ingest_type == "dataset")
        assert (failed.status, len(node.requests)) == ("error-platform-download", 1)
        assert f"{node.host} asks to wait" in (failed.message or "")
        assert [one.status for one in others] == ["success-file", "success-file"]
        waits.append("1")
        assert filesets.ingest(urls[0])[0].status == "success-file"
        asked = [at for at, path in zip(platform.times, platform.requests, strict=True) if path == first]
        assert node.times[1] + 1 <= asked[-1] <= node.times[2], "the target may have expired: it is asked for again"


def silent(handler: Handler, data: bytes) -> None:
    handler.head(data)
    handler.wfile.flush()
    handler.connection.recv(1)


def stuck_after_a_byte(handler: Handler, data: bytes) -> None:
    handler.wfile.write(handler.head(data)[:1])
    handler.wfile.flush()
    handler.connection.recv(1)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda handler, data: handler.answer(502, b""), lambda handler, data: handler.connection.close(), silent,
        stuck_after_a_byte,
    ],
    ids=["502", "closed", "silent", "stuck"],
)
def test_a_host_that_fails_again_and_again_is_asked_no_more(folder: Path, platform: Platform, trouble: Any) -> None:
    filesets = make_archive(folder, platform, fetch={"per_host": 2, "host_failures": 3, "idle_timeout": "1s"})
    url = zenodo(platform, 7, {f"f{n:02}": 10 for n in range(30)})
    first, *others = platform.files
    platform.behaviours |= dict.fromkeys(others, trouble)
    (result,) = filesets.ingest(url)
    assert result.status == "success-partial"
    assert "was given up for this run" in (result.message or "")
    assert sum("/files/" in path for path in platform.requests) <= 1 + 3 + 2, "three failures, two requests at once"
    platform.behaviours.clear()
    filesets.asked()
    assert filesets.ingest(url)[0].status == "success"
    assert first not in filesets.asked(), "it is held"


def test_who_waits_for_the_target_of_a_redirect_keeps_no_place(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"per_host": 1})
    url = zenodo(platform, 7, {"p": 10, "q": 10})
    first, other = platform.files
    waits = ["1"]

    def busy(handler: Handler, data: bytes) -> None:
        if waits:
            handler.answer(503, b"", **{"retry-after": waits.pop()})
        else:
            handler.serve(data)

    with playing() as node:
        node.files["/p"], node.behaviours["/p"] = platform.files[first], busy
        platform.redirects[first] = f"{node.url}/p"
        assert filesets.ingest(url)[0].status == "success"
    assert [path for path in platform.requests if "/files/" in path] == [first, other, first]


@pytest.mark.parametrize(("reset", "most", "rests"), [("60", 0.3, 2), ("1795451741854", 9, 0), ("9" * 20, 9, 0)])
def test_a_host_that_says_that_its_limit_is_used_up_rests(
    folder: Path, platform: Platform, reset: str, most: float, rests: int
) -> None:
    """It does not if the end is no time in seconds."""
    filesets = make_archive(folder, platform, fetch={"per_host": 1, "max_delay": f"{most}s"})
    url = zenodo(platform, 7, {"p": 10, "q": 10})

    def limited(handler: Handler, data: bytes) -> None:
        handler.answer(200, data, **{"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})

    platform.behaviours |= dict.fromkeys(platform.files, limited)
    assert filesets.ingest(url)[0].status == "success"
    gaps = [after - before for before, after in itertools.pairwise(platform.times)]
    after_files = [gap for gap, path in zip(gaps, platform.requests, strict=False) if path in platform.files]
    assert len(after_files) == 2, "the page of the data set is asked for last"
    assert sum(gap > most - 0.01 for gap in after_files) == rests


def test_too_many_requests_are_repeated_later_and_no_failure(folder: Path, platform: Platform) -> None:
    """The host does not say when. Ten refusals would be too many failures."""
    filesets = make_archive(folder, platform, fetch={"per_host": 2, "host_failures": 3, "retries": 0})
    url, until = zenodo(platform, 7, {f"p{n}": 10 for n in range(10)}), time.monotonic() + 2.5

    def limited(handler: Handler, data: bytes) -> None:
        if time.monotonic() < until:
            handler.answer(429, b"")
        else:
            handler.serve(data)

    platform.behaviours |= dict.fromkeys(platform.files, limited)
    assert filesets.ingest(url)[0].status == "success"
    asked = [at for at, path in zip(platform.times, platform.requests, strict=True) if path in platform.files]
    assert len(asked) <= 10 + 2 * 2, "after 1 and 2 seconds, two at once"


def test_a_host_that_always_has_too_many_requests_is_left_alone(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"per_host": 1, "max_delay": "1s"})
    url = zenodo(platform, 7, {f"p{n}": 10 for n in range(10)})
    refuse = lambda handler, data: handler.answer(429, b"")  # noqa: E731
    platform.behaviours |= dict.fromkeys(platform.files, refuse)
    (result,) = filesets.ingest(url)
    assert result.status == "error-platform-download"
    assert "asks to wait" in (result.message or "")
    assert sum(path in platform.files for path in platform.requests) == 2


def test_a_refusal_for_the_rate_that_says_only_when_the_limit_ends(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"max_delay": "3s"})
    url, until = zenodo(platform, 7, {"p": 10}), time.time() + 2

    def limited(handler: Handler, data: bytes) -> None:
        if time.time() < until:
            handler.answer(429, b"", **{"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(until) + 1)})
        else:
            handler.serve(data)

    platform.behaviours |= dict.fromkeys(platform.files, limited)
    assert filesets.ingest(url)[0].status == "success-file"


def test_a_platform_on_a_host_that_only_its_pages_tell_has_its_rate_limit(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fileset={"platforms": {"inveniordm": {"rate": "2/s"}}})
    urls = [zenodo(platform, number, {"p": 10}, concept=number + 10) for number in range(1, 5)]
    for number in range(1, 5):
        platform.bodies[f"/records/{number}"] = f'<a href="{platform.url}/api/records/{number}">'.encode()
    assert {result.platform_name for result in filesets.ingest(*urls)} == {"inveniordm"}
    times = dict(zip(platform.requests, platform.times, strict=True))
    asked = [times[f"/api/records/{number}"] for number in range(1, 5)]
    assert asked[3] - asked[0] > 0.9, "two at once, then two a second"


def test_a_strategy_for_one_file_is_not_for_two(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    (result,) = filesets.ingest(url, strategy=IngestStrategy.WEB_FILE)
    assert (result.status, result.file_count) == ("no-strategy-helper", 2)
    assert not platform.sent


def test_unsafe_paths_are_not_fetched(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 10})
    platform.bodies["/api/records/7"]["files"][1]["key"] = "../../etc/passwd"
    (result,) = filesets.ingest(url)
    assert result.status == "success-partial"
    assert [file.status for file in result.manifest or ()] == ["success", "unsafe-path"]
    assert "/api/records/7/files/q/content" not in filesets.asked()


def test_what_is_not_whole_stays_so(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 10})
    platform.bodies["/api/records/7"]["files"][1]["key"] = "../evil.txt"
    (first,) = filesets.ingest(url)
    filesets.asked()
    for _ in range(2):
        (again,) = filesets.ingest(url)
        assert filesets.asked() == ["/api/records/7"]
        assert (again.status, again.hit, again.message) == ("success-partial", False, "../evil.txt: unsafe-path")
        assert (again.fileset, again.terminal) == (first.fileset, first.terminal)
    assert exit_code([again.status]) is Exit.OPERATOR_ERROR


def test_a_wrong_type_is_replaced_and_one_that_may_be_right_is_not(filesets: Filesets, platform: Platform) -> None:
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    told = {"p": "text/csv", "q": sheet, "r": "", "s": "text/x-stata-syntax"}
    url = zenodo(platform, 7, dict.fromkeys(told, 10))
    bodies = {"p": b"%PDF-1.4\n", "q": b"PK\x03\x04" + bytes(60), "r": b"%PDF-1.4\n", "s": b"use data\n"}
    for row in platform.bodies["/api/records/7"]["files"]:
        data = platform.files[row["links"]["self"].removeprefix(platform.url)] = bodies[row["key"]]
        row |= {"mimetype": told[row["key"]], "size": len(data), "checksum": ""}
    (result,) = filesets.ingest(url)
    assert [file.mimetype for file in result.manifest or ()] == [
        "application/pdf", sheet, "application/pdf", "text/x-stata-syntax",
    ]  # fmt: skip
    first = (result.manifest or [])[0]
    assert (first.extra or {})["platform_mimetype"] == "text/csv"


def test_what_has_a_sha1_only_and_is_held_is_not_fetched(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 10})
    for row in platform.bodies["/api/records/7"]["files"]:
        row["checksum"] = f"sha1:{hashlib.sha1(bytes_of(row['key'], 10)).hexdigest()}"
    filesets.ingest(url)
    platform.bodies["/api/records/7"]["files"].pop()
    filesets.asked()
    assert filesets.ingest(url)[0].status == "success-file"
    assert not any("/files/" in path for path in filesets.asked())


def test_only_wanted_files(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"a.csv": 10, "b.csv": 10, "c.txt": 10})
    for expected in ("success-file", "success-existing"):
        result = filesets.ingest(url, include=("*.csv",), exclude=("b*",))[0]
        assert (result.status, [file.path for file in result.manifest or ()]) == (expected, ["a.csv"])
        assert result.message == "1 of 3 files selected"

    def paths() -> list[str]:
        with filesets.archive() as archive:
            return [file.path for file in find_fileset(archive, url).manifest.manifest]

    filesets.ingest(url, include=("*.txt",))
    assert paths() == ["a.csv", "c.txt"], "what is held of a version is not taken away by asking for other files of it"
    assert filesets.ingest(url)[0].status == "success"
    assert filesets.ingest(url, exclude=("b*",))[0].status == "success-existing"
    assert paths() == ["a.csv", "b.csv", "c.txt"]
    record, platform.bodies["/api/records/7"] = platform.bodies["/api/records/7"], 410
    filesets.ingest(url)
    platform.bodies["/api/records/7"] = record
    assert filesets.ingest(url, include=("a*",))[0].status == "success-existing"
    assert states(filesets)[-2:] == [None, "7"]
    assert paths() == ["a.csv", "b.csv", "c.txt"], "what returns has all files that were held of it"
    zenodo(platform, 7, {"a.csv": 10, "b.csv": 11})
    assert filesets.ingest(url, include=("b*",))[0].status == "success-file"
    assert paths() == ["a.csv", "b.csv"]
    newer = zenodo(platform, 8, {"a.csv": 10})
    filesets.ingest(newer)
    zenodo(platform, 7, {"a.csv": 10, "b.csv": 12})
    filesets.ingest(url, include=("b*",))
    with filesets.archive() as archive:
        older = find_fileset(archive, f"{fileset_id(platform)}@7").manifest
    assert [(file.path, file.size) for file in older.manifest] == [("a.csv", 10), ("b.csv", 12)], "of an older version"
    assert paths() == ["a.csv", "b.csv"]
    assert filesets.ingest(url)[0].status == "success-existing", "all of it is held"


def test_a_doi_is_resolved_and_its_landing_page_may_fail(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.bodies["/records/7"] = 500
    platform.bodies["/api/handles/10.5281/zenodo.7"] = {
        "values": [{"type": "HS_ADMIN", "data": {}}, {"type": "URL", "data": {"value": url}}]
    }
    result = filesets.ingest("doi:10.5281/zenodo.7")[0]
    assert (result.status, result.terminal, result.platform_base_url) == ("success-file", None, url)
    assert filesets.ingest("10.5281/zenodo.8")[0].status == "platform-404"


def test_a_doi_may_be_an_alias_or_have_several_locations(filesets: Filesets, platform: Platform) -> None:
    places = f'<locations><location href="http://h/" weight="0"/><location href="{zenodo(platform, 7, {"p": 10})}"/>'

    def register(doi: str, kind: str, value: str) -> None:
        platform.bodies[f"/api/handles/{doi}"] = {"values": [{"type": kind, "data": {"value": value}}]}

    register("10.1234/a", "HS_ALIAS", "10.1234/b")
    register("10.1234/b", "10320/loc", f"<?xml version='1.0'?>{places}</locations>")
    register("10.1234/c", "HS_ALIAS", "10.1234/c")
    register("10.1234/d", "10320/loc", "<locations/>")
    found = [filesets.ingest(f"10.1234/{name}")[0].status for name in "acd"]
    assert found == ["success-file", "platform-404", "platform-error"]


def test_the_landing_page_is_captured_also_where_the_platform_knows_no_data_set(
    filesets: Filesets, platform: Platform
) -> None:
    platform.bodies["/records/7"] = b"<html>Not published yet</html>"
    result = filesets.ingest(f"{platform.url}/records/7")[0]
    assert (result.status, (result.terminal or {}).get("terminal_status_code")) == ("platform-404", 200)
    assert held(filesets, f"{platform.url}/records/7") == b"<html>Not published yet</html>"


def test_the_url_of_the_newest_version_leads_to_it(filesets: Filesets, platform: Platform) -> None:
    first, newest = zenodo(platform, 7, {"p": 10}), zenodo(platform, 9, {"q": 10})
    platform.redirects["/records/7/latest"] = newest
    assert filesets.ingest(f"{first}/latest")[0].platform_id == "9"
    asked = f"{platform.url}/api/records/7/versions/latest"
    platform.bodies["/robots.txt"] = b"User-agent: *\nDisallow: /api\n"
    platform.redirects["/api/records/7/versions/latest"] = f"{platform.url}/api/records/9"
    (result,) = filesets.ingest(asked)
    assert (result.platform_id, result.status) == ("9", "success-existing")


def test_a_collection_of_archiveorg_is_one_though_the_search_for_its_members_gets_no_answer(
    folder: Path, platform: Platform
) -> None:
    filesets = make_archive(folder, platform, fileset={
        "resolver": platform.url, "platforms": {"archiveorg": {"hosts": [platform.host], "rate": "none"}}
    })  # fmt: skip
    platform.bodies["/metadata/prices"] = {"is_collection": True, "metadata": {"identifier": "prices"}, "files": []}
    platform.files["/advancedsearch.php"] = b""
    platform.behaviours["/advancedsearch.php"] = lambda handler, _: handler.connection.close()
    (result,) = filesets.ingest(f"{platform.url}/details/prices")
    assert (result.status, result.due) == ("platform-scope", None)
    assert sum(path.startswith("/advancedsearch") for path in filesets.asked()) == 2


def test_files_are_hashed_and_written_beside_the_downloads(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But small ones, for which waking a thread takes as long."""
    loop, close, others = threading.get_ident(), Temp.close, set[int]()

    def closed(temp: Temp, *, sync: bool = False) -> Stored:
        if threading.get_ident() != loop:
            others.add(temp.size)
        return close(temp, sync=sync)

    monkeypatch.setattr(Temp, "close", closed)
    filesets.ingest(zenodo(platform, 7, {"p": 10_000, "q": 100_000}))
    assert others == {100_000}


def test_a_tombstone_of_a_data_set_that_the_api_does_not_know(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    assert filesets.ingest(url)[0].status == "success-file"
    platform.bodies |= {"/api/records/7": 404, "/records/7": 410}
    result = filesets.ingest(url)[0]
    assert (result.status, (result.terminal or {}).get("terminal_status_code")) == ("platform-gone", 410)
    with filesets.archive() as archive:
        (obi,) = archive.catalogue.all("fileset")
        assert not obi.history.held
    platform.bodies["/records/7"] = 404
    filesets.asked()
    assert filesets.ingest(f"{url}?again")[0].status == "platform-404"
    assert filesets.asked().count("/records/7?again") == 1, "the page is not asked for again"


def test_of_several_urls_of_a_doi_the_first_by_index_counts(filesets: Filesets, platform: Platform) -> None:
    def register(*values: tuple[int, str], code: int = 1) -> str:
        rows = [{"index": index, "type": "URL", "data": {"value": url}} for index, url in values]
        admin = {"index": 100, "type": "HS_ADMIN", "data": []}
        platform.bodies["/api/handles/10.1234/a"] = {"responseCode": code, "values": [admin, *rows] if rows else []}
        return filesets.ingest("10.1234/a")[0].status

    first, second = zenodo(platform, 7, {"p": 10}), zenodo(platform, 8, {"q": 10}, concept=5)
    assert register((2, second), (1, first)) == "success-file"
    assert "/api/records/8" not in filesets.asked()
    assert register((1, "see the library"), (3, second)) == "success-file"
    assert register((1, "see the library")) == "platform-error"
    assert [register(code=code) for code in (100, 200, 2)] == ["platform-404", "platform-404", "platform-http-error"]
    for code in (400, 403, 410):
        platform.bodies["/api/handles/10.1234/a"] = code
        assert filesets.ingest("10.1234/a")[0].status == "platform-http-error"


def test_what_is_not_ready_is_asked_for_again(filesets: Filesets, platform: Platform) -> None:
    def being_prepared(handler: Handler, data: bytes) -> None:
        if platform.requests.count(handler.path) == 1:
            handler.answer(202, b"being prepared", **{"retry-after": "0"})
        else:
            handler.serve(data)

    url = zenodo(platform, 7, {"p": 10})
    platform.behaviours["/api/records/7/files/p/content"] = being_prepared
    assert filesets.ingest(url)[0].status == "success-file"


def test_a_file_asked_for_itself_needs_direct(filesets: Filesets, platform: Platform) -> None:
    platform.files["/some/p.csv"] = b"a,b\n1,2\n"
    url = f"{platform.url}/some/p.csv"
    assert filesets.ingest(url)[0].status == "no-platform-match"
    result = filesets.ingest(url, direct=True)[0]
    assert (result.status, result.platform_name, result.ingest_strategy) == ("success-file", "direct", "web-file")
    assert held(filesets, url) == b"a,b\n1,2\n"
    platform.files["/some/empty.csv"] = b""
    assert filesets.ingest(f"{platform.url}/some/empty.csv", direct=True)[0].total_size == 0


def test_a_file_asked_for_itself_is_received_once(filesets: Filesets, platform: Platform) -> None:
    platform.files["/some/p.bin"] = bytes_of("p", 15_000_000)
    url = f"{platform.url}/some/p.bin"
    assert filesets.ingest(url)[0].status == "no-platform-match"
    assert platform.sent["/some/p.bin"] == 0, "what it is not, its header says"
    for expected in ("success-file", "success-existing"):
        assert filesets.ingest(url, direct=True)[0].status == expected
        assert platform.sent["/some/p.bin"] == 15_000_000


def test_no_more_is_read_of_a_page_than_a_page_has(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger one has no part in the rest of an ingest; a larger file of another type is none."""
    monkeypatch.setattr(asking, "_MOST_OF_PAGE", 100_000)
    platform.files["/large.bin"] = bytes_of("large", 10**6)
    url = f"{platform.url}/large.bin"
    assert filesets.ingest(url)[0].status == "no-platform-match"
    result = filesets.ingest(url, direct=True)[0]
    assert (result.status, result.total_size, result.terminal) == ("success-file", 10**6, None)
    platform.files["/untyped.bin"] = bytes_of("untyped", 10**6)
    platform.behaviours["/untyped.bin"] = lambda handler, data: handler.answer(200, data)
    assert filesets.ingest(f"{platform.url}/untyped.bin", direct=True)[0].status == "success-file"
    with closing(FtpServer({"p.bin": bytes(10**6)})) as server:
        assert filesets.ingest(server.url("p.bin"), direct=True)[0].status == "success-file"
    page = platform.bodies["/large"] = b'<html><link rel="item" href="' + b"a" * 10**6
    assert filesets.ingest(f"{platform.url}/large")[0].status == "body-too-large"
    platform.bodies["/none"] = b"<html></html>"
    (none,) = filesets.ingest(f"{platform.url}/none")
    assert (none.status, "tried zenodo, " in (none.message or "")) == ("no-platform-match", True)
    assert (none.platform_name, none.platform_domain, none.platform_id) == (None, None, None)
    url = zenodo(platform, 7, {"p": 10})
    platform.bodies["/records/7"] = page
    result = filesets.ingest(url)[0]
    assert (result.status, result.terminal) == ("success-file", None)


def test_what_is_not_asked_because_it_is_disabled_is_named(folder: Path, platform: Platform) -> None:
    hosts = {"zenodo": {"hosts": [platform.host], "enabled": False}}
    filesets = make_archive(folder, platform, fileset={"platforms": hosts})
    (result,) = filesets.ingest(zenodo(platform, 7, {"p": 10}))
    assert (result.status, platform.sent.total()) == ("no-platform-match", 0)
    assert (result.message or "").endswith("; disabled: zenodo")


def test_a_page_that_describes_its_data_is_the_last_resort(filesets: Filesets, platform: Platform) -> None:
    """Its title is that of the page if nothing else is; it is found by the DOI that the page is to be cited by."""
    data = {"@type": "Dataset", "distribution": [{"contentUrl": "/files/p.csv"}]}
    page = f'<html><title>\n Prices</title><script type="application/ld+json">{json.dumps(data)}</script>'
    platform.bodies["/data/7"] = f'{page}<link rel="cite-as" href="https://doi.org/10.1234/A"></html>'.encode()
    platform.files["/files/p.csv"] = b"a,b\n"
    (planned,) = filesets.ingest(f"{platform.url}/data/7", dry_run=True)
    assert (planned.file_count, planned.total_size) == (1, None), "the page does not say its size"
    result = filesets.ingest(f"{platform.url}/data/7")[0]
    assert (result.status, result.platform_name, result.total_size) == ("success-file", "generic", 4)
    with filesets.archive() as archive:
        found = find_fileset(archive, "doi:10.1234/a")
        assert (found.manifest.title, found.obi.id) == ("Prices", (result.fileset or "").partition("@")[0])
    platform.bodies["/data/7"] = 410
    gone = filesets.ingest(f"{platform.url}/data/7")[0]
    assert (gone.status, gone.fileset, (gone.file_meta or {})["size_bytes"]) == ("platform-gone", found.obi.id, 23)
    with filesets.archive() as archive:
        assert not find(archive.catalogue, found.obi.id).history.held


def test_a_file_on_an_ftp_server_is_fetched(filesets: Filesets, platform: Platform) -> None:
    with closing(FtpServer({"pub/p.csv": b"a,b"})) as server:
        secret = server.url("none").replace("ftp://", "FTP://user:s3cret@")
        links = [{"contentUrl": server.url("pub/p.csv")}, {"contentUrl": secret, "name": "q"}]
        data = json.dumps({"@type": "Dataset", "name": "P", "distribution": links})
        platform.bodies["/d/8"] = f'<script type="application/ld+json">{data}</script>'.encode()
        (result,) = filesets.ingest(f"{platform.url}/d/8")
        assert [(file.path, file.status) for file in result.manifest or ()] == [
            ("p.csv", "success"), ("q", "error-platform-download"),
        ]  # fmt: skip
        assert not any("robots" in line for line in server.heard)
        assert "s3cret" not in str(result)


def test_files_whose_urls_differ_in_a_query_only_are_files_of_their_own(filesets: Filesets, platform: Platform) -> None:
    """Where they differ in a token only, their paths tell them apart; URLs that are the same are one file."""
    sent = iter(range(99))
    platform.behaviours["/f"] = lambda handler, data: handler.answer(200, handler.path.encode())
    platform.behaviours["/same"] = lambda handler, data: handler.answer(200, str(next(sent)).encode())
    platform.files |= {"/f": b"", "/same": b""}

    def ingested(name: str, *urls: str) -> IngestResult:
        files = [{"contentUrl": url, "name": f"{number} a.csv"} for number, url in enumerate(urls)]
        data = {"@type": "Dataset", "name": name, "distribution": files}
        platform.bodies[f"/data/{name}"] = f'<script type="application/ld+json">{json.dumps(data)}</script>'.encode()
        return filesets.ingest(f"{platform.url}/data/{name}")[0]

    for name, ids in (("key", ["/f?key=1", "/f?key=2"]), ("token", ["/f?path=0%20a.csv", "/f?path=1%20a.csv"])):
        result = ingested(name, f"/f?{name}=1", f"/f?{name}=2")
        assert result.status == "success", result.message
        rows = result.manifest or []
        assert [row.platform_url for row in rows] == [platform.url + one for one in ids]
        for number, row in enumerate(rows, 1):
            assert held(filesets, row.platform_url or "") == f"/f?{name}={number}".encode()
    assert ingested("token", "/f?token=3", "/f?token=4").status == "success-existing"
    same = ingested("same", "/same?token=1", "/same?token=1#again")
    assert {row.status for row in same.manifest or ()} == {"success", "error-platform-download"}
    assert "not stored" in (same.message or "")


def test_a_hostile_url_fails_its_own_request_only(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filesets = make_archive(folder, platform, fetch={"deny": [{"hosts": ["denied.example"]}]})
    platform.redirects |= {"/port": "http://h:99999/", "/mail": "mailto:x", "/bracket": "http://[x"}
    asked = ["http://[x", "http://h:99999/", *(platform.url + path for path in platform.redirects)]
    results = filesets.ingest(*asked, zenodo(platform, 7, {"p": 1}))
    assert [one.status for one in results[:6]] == [
        "bad-request", "bad-request", "bad-redirect", "bad-redirect", "bad-redirect", "success-file",
    ]  # fmt: skip

    async def fail(work: object, request: IngestRequest) -> IngestResult:
        raise KeyError("a" if request.base_url.endswith("/1") else "http://h/?token=planted")

    monkeypatch.setattr("archec.fileset.run.ingest", fail)
    results = filesets.ingest(f"{platform.url}/1", f"{platform.url}/2")
    assert [(one.status, one.message) for one in results] == [
        ("error-internal", "internal: KeyError: 'a'"), ("error-internal", "internal: KeyError: 'http://h/'"),
    ]  # fmt: skip
    assert "Traceback" in caplog.text
    assert "planted" not in caplog.text


def test_robots_bind_pages_and_not_documented_apis(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.bodies["/robots.txt"] = b"User-agent: *\nDisallow: /"
    result = filesets.ingest(url)[0]
    assert (result.status, result.terminal) == ("success-file", None)
    filesets.asked()
    pages = [f"/data/{number}" for number in range(3)]
    platform.bodies |= dict.fromkeys(pages, b"<html></html>")
    results = filesets.ingest(*(platform.url + page for page in pages), jobs=3)  # all wait for one robots.txt
    assert [result.status for result in results] == ["robots"] * 3
    asked = filesets.asked()
    assert asked.count("/robots.txt") == 1
    assert not set(pages) & set(asked)
    platform.bodies["/robots.txt"] = b"User-agent: *\nDisallow: /data/p"
    platform.bodies["/data/7"] = b'<html><link rel="item" href="/data/p"><link rel="item" href="/data/q"></html>'
    platform.files |= {"/data/p": b"p", "/data/q": b"q"}
    (last_resort,) = filesets.ingest(f"{platform.url}/data/7")
    assert [file.status for file in last_resort.manifest or ()] == ["robots", "success"]
    assert "/data/p" not in filesets.asked()
    platform.bodies["/robots.txt"] = b"User-agent: *\nDisallow: /data/p\n#" + b"x" * 600_000
    assert filesets.ingest(f"{platform.url}/data/p")[0].status == "robots", "the rest of a large one is not read"


@pytest.mark.parametrize("status", [403, 503])
def test_a_url_that_expires_under_way_does_not_lose_what_was_received(
    filesets: Filesets, platform: Platform, status: int
) -> None:
    """The next ingest gets another URL of the platform, and goes on."""
    url, valid = zenodo(platform, 7, {"p": 3_000_000}), ["1"]
    ((path, data),) = platform.files.items()
    links = platform.bodies["/api/records/7"]["files"][0]["links"]

    def expiring(handler: Handler, data: bytes) -> None:
        if handler.path.endswith(f"&Expires={valid[0]}"):
            valid[0] = "2"
            broken_at_quarters(handler, data) if handler.path.endswith("1") else handler.serve(data)
        else:
            handler.answer(status, b"")

    platform.behaviours[path] = expiring
    for number in "12":
        links["self"] = f"{platform.url}{path}?X-Amz-Signature=s&Expires={number}"
        result = filesets.ingest(url)[0]
    assert result.status == "success-file"
    assert sum(platform.sent.values()) == len(data)


def test_a_server_that_refuses_ranges_sends_it_whole(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 3_000_000})
    (path,) = platform.files
    broken = [True]

    def ranges_refused(handler: Handler, data: bytes) -> None:
        if "range" in {name.lower() for name in handler.headers}:
            handler.answer(403, b"")
        elif broken:
            broken.clear()
            broken_at_quarters(handler, data)
        else:
            handler.serve(data)

    platform.behaviours[path] = ranges_refused
    assert filesets.ingest(url)[0].status == "success-file"


def test_a_file_that_alone_is_refused_as_too_many_requests_ends(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others succeed between its refusals, so that the rests of the host never become long."""
    monkeypatch.setattr(asking, "_PENALTY", 0.01)
    filesets = make_archive(folder, platform, fetch={"per_host": 2, "max_delay": "1s", "retries": 0})
    url = zenodo(platform, 7, {f"p{n}": 10 for n in range(90)})
    bad = next(iter(platform.files))
    platform.behaviours[bad] = lambda handler, data: handler.answer(429, b"")
    assert filesets.ingest(url)[0].status == "success-partial"
    assert platform.requests.count(bad) == 10
    assert all(platform.requests.count(path) == 1 for path in platform.files if path != bad)


def test_redirects_to_ever_new_hosts_end(filesets: Filesets) -> None:
    """The robots.txt of each is requested first, and the page redirects to another one next time."""

    class Endless(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing is logged."""

        def do_GET(self) -> None:
            if self.path == "/robots.txt":
                self.send_error(404)
                return
            count = next(counter)
            assert count < 100
            self.send_response(302)
            self.send_header("location", f"http://127.0.1.{count}:{self.server.server_port}/data/1")  # type: ignore[attr-defined]
            self.end_headers()

    counter = itertools.count(1)
    with ThreadingHTTPServer(("0.0.0.0", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        (result,) = filesets.ingest(f"http://127.0.0.1:{server.server_port}/data/1")
        server.shutdown()
    assert result.status == "redirects-exceeded"


def test_a_temporary_error_of_the_platform_is_no_state(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    api = f"{platform.url}/api/records/7"
    filesets.ingest(url)
    for answer, count in ((500, 1), (410, 2)):
        platform.bodies["/api/records/7"] = answer
        filesets.ingest(url)
        with filesets.archive() as archive:
            assert len(archive.catalogue.obis("fobi", [api])[api].history) == count, answer


def test_robots_bind_what_pages_redirect_to(filesets: Filesets, platform: Platform) -> None:
    platform.redirects["/data/1"] = "/data/2"
    platform.bodies |= {"/data/2": b"<html></html>", "/robots.txt": b"User-agent: *\nDisallow: /data/2"}
    assert filesets.ingest(f"{platform.url}/data/1")[0].status == "robots"
    with playing() as node:
        node.bodies |= {"/p": b"<html></html>", "/robots.txt": b"User-agent: *\nDisallow: /p"}
        platform.redirects["/data/1"] = f"{node.url}/p"
        assert filesets.ingest(f"{platform.url}/data/1")[0].status == "robots"
        assert node.requests == ["/robots.txt"]


def test_crawl_delay_is_that_of_pages_and_the_last_resort(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"max_delay": "2s"})
    url = zenodo(platform, 7, {f"p{n}": 10 for n in range(20)})
    platform.bodies["/robots.txt"] = b"User-agent: *\nCrawl-delay: 0.4"
    platform.bodies["/data/7"] = b'<html><link rel="item" href="/data/p"><link rel="item" href="/data/q"></html>'
    platform.files |= {"/data/p": b"p", "/data/q": b"q"}
    results = filesets.ingest(url, f"{platform.url}/data/7", jobs=2)
    assert [one.status for one in results] == ["success"] * 2
    bound = ["/robots.txt", "/data/7", "/data/p", "/data/q", "/records/7"]
    times = [at for at, path in zip(platform.times, platform.requests, strict=True) if path in bound]
    assert len(times) == len(bound)
    assert all(after - before > 0.3 for before, after in itertools.pairwise(times))
    free = [at for at, path in zip(platform.times, platform.requests, strict=True) if path not in bound]
    assert min(after - before for before, after in itertools.pairwise(free)) < 0.3
    platform.bodies["/robots.txt"] = b"User-agent: *\nCrawl-delay: 3"
    (result,) = filesets.ingest(f"{platform.url}/data/7")
    assert (result.status, "robots.txt asks for 3 s" in (result.message or "")) == ("no-capture", True)
    assert result.due is not None


def test_robots_that_cannot_be_had_are_no_permission(filesets: Filesets, platform: Platform) -> None:
    url, page = zenodo(platform, 7, {"p": 10}), f"{platform.url}/data/7"
    platform.bodies["/robots.txt"] = 500
    assert filesets.ingest(url)[0].status == "success-file"
    with playing() as node:
        platform.bodies["/data/7"] = f'<html><link rel="item" href="{node.url}/q"></html>'.encode()
        node.files["/q"], node.bodies["/robots.txt"] = b"q", 503
        (result,) = filesets.ingest(page)
        assert (result.status, "not available: HTTP 500" in (result.message or "")) == ("no-capture", True)
        assert result.due is not None
        assert "/data/7" not in filesets.asked()
        del platform.bodies["/robots.txt"]
        (result,) = filesets.ingest(page)
        assert [file.status for file in result.manifest or ()] == ["error-platform-download"]
        node.redirects["/robots.txt"] = "gopher://h/"
        assert filesets.ingest(page)[0].status == "success-file"


def test_a_file_that_must_not_be_fetched_is_no_failure_of_the_platform(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"deny": [{"urls": ["*/files/p*"], "reason": "not wanted"}]})
    (result,) = filesets.ingest(zenodo(platform, 7, {"p": 10, "q": 10}))
    assert [file.status for file in result.manifest or ()] == ["skip-url-blocklist", "success"]
    platform.bodies["/data/7"] = b'<html><link rel="item" href="http://10.0.0.1/p"></html>'
    (result,) = filesets.ingest(f"{platform.url}/data/7")
    assert [file.status for file in result.manifest or ()] == ["blocked-address"], "nor is its robots.txt"


def test_a_landing_page_that_cannot_be_had_says_why_and_when_again(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"deny": [{"hosts": ["denied.example"], "reason": "not wanted"}]})
    record = zenodo(platform, 7, {"p": 10})
    host = platform.url
    platform.redirects = {"/loop": "/loop", "/odd": "gopher://h/", "/go": record}
    platform.redirects |= {f"/{n}": f"/{n + 1}" for n in range(11)}
    platform.bodies |= {"/page": b"<html>", "/empty": b"", "/broken": 500, "/gone": 410}
    cases = {
        "http://127.0.0.9:1/": "no-capture", f"{host}/loop": "redirect-loop", f"{host}/0": "redirects-exceeded",
        f"{host}/odd": "bad-redirect",
        f"{host}/missing": "terminal-bad-status", f"{host}/broken": "terminal-bad-status",
        f"{host}/empty": "empty-blob", "http://a.denied.example/": "skip-url-blocklist",
        f"{host}/gone": "platform-gone", f"{host}/page": "no-platform-match", "nonsense": "bad-request",
    }  # fmt: skip
    results = filesets.ingest(*cases)
    assert {one.request["base_url"]: one.status for one in results} == cases
    assert all(one.message for one in results)
    lasting = {one.status for one in results if one.due is None}
    assert lasting == {"no-platform-match", "bad-redirect", "skip-url-blocklist", "bad-request", "platform-gone"}
    platform.bodies["/records/7"] = 403
    assert filesets.ingest(f"{host}/go")[0].status == "success-file", "the platform is known, its page does not matter"
    platform.bodies |= {"/records/7": b"<html></html>", "/api/records/7": 500}
    (broken,) = filesets.ingest(record)
    assert (broken.status, (broken.terminal or {})["terminal_url"]) == ("platform-http-error", record)


def test_signatures_of_redirect_targets_are_kept_nowhere(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    platform.files["/bucket/p"] = platform.files.pop("/api/records/7/files/p/content")
    platform.redirects["/api/records/7/files/p/content"] = f"{platform.url}/bucket/p?X-Amz-Signature=SECRET"
    result = filesets.ingest(url)[0]
    assert result.status == "success-file"
    assert (result.manifest or [])[0].terminal_url == f"{platform.url}/bucket/p"
    other = zenodo(platform, 9, {"q": 10}, concept=8)
    platform.redirects["/api/records/9"] = f"{platform.url}/api/signed?sig=SECRET&v=1"
    platform.bodies["/api/signed"] = 500
    broken = zenodo(platform, 11, {"r": 10}, concept=10)
    platform.bodies["/api/records/11"]["files"][0]["links"]["self"] += "?token=SECRET"
    platform.redirects["/api/records/11/files/r/content?token=SECRET"] = f"{platform.url}/bucket/r?Signature=SECRET"
    platform.bodies["/bucket/r"] = 500
    platform.files["/direct"] = b"a,b\n"
    direct = f"{platform.url.replace('//', '//user:SECRET@')}/direct?x=1&X-Amz-Signature=SECRET"
    results = filesets.ingest(other, broken, direct, f"{platform.url}/page?access_token=SECRET", direct=True)
    assert [one.status for one in results] == [
        "platform-http-error", "error-platform-download", "success-file", "success", "terminal-bad-status",
    ]  # fmt: skip
    assert results[0].message == f"{platform.url}/api/signed?v=1: HTTP 500: so it is"
    assert results[2].platform_base_url == f"{platform.url}/direct?x=1"
    assert "SECRET" not in repr(results)
    everything = "".join(json.dumps(line) for line in filesets.dump())
    for path in Path(filesets.config.base).rglob("*"):
        if path.is_file():
            assert b"SECRET" not in path.read_bytes(), path
    assert "SECRET" not in everything


def test_a_token_goes_to_the_platform_only(folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "hush-hush")
    platforms = {"zenodo": {"hosts": [platform.host], "rate": "none", "token": "TEST_TOKEN"}}
    filesets = make_archive(folder, platform, fileset={"platforms": platforms, "resolver": platform.url})
    url = zenodo(platform, 7, {"p": 10})
    assert filesets.ingest(url)[0].status == "success-file"
    sent = dict(zip(platform.requests, platform.headers, strict=True))
    assert sent["/api/records/7"]["authorization"] == "Bearer hush-hush"
    assert "authorization" not in sent["/records/7"]
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"hush-hush" not in path.read_bytes(), path


def test_with_a_token_only_the_platform_says_what_is_restricted(
    folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "hush-hush")
    common = {"hosts": [platform.host], "rate": "none"}

    def ingested(name: str, url: str, **more: str) -> IngestResult:
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        changed = {"platforms": {name: common | more}, "resolver": platform.url}
        return make_archive(place, platform, fileset=changed).ingest(url)[0]

    body = copy.deepcopy(DATAVERSE)
    rows = body["data"]["latestVersion"]["files"] = body["data"]["latestVersion"]["files"][1:]
    for row, path in zip(rows, ("12", "13"), strict=True):
        platform.files[f"/api/access/datafile/{path}"] = b"abc"
        row["dataFile"].pop("checksum")
    platform.behaviours["/api/access/datafile/13"] = lambda handler, data: handler.answer(403, b"no")
    platform.bodies["/api/datasets/:persistentId/"] = body
    url = f"{platform.url}/dataset.xhtml?persistentId=doi:10.7910/DVN/ABCDEF"
    result = ingested("dataverse", url, token="TEST_TOKEN")
    assert [file.status for file in result.manifest or ()] == ["success", "platform-restricted"]
    assert result.due is not None
    assert ingested("dataverse", url).status == "platform-restricted"

    url = zenodo(platform, 7, {"p": 10, "q": 5})
    platform.bodies["/api/records/7"]["metadata"] |= {"access_right": "embargoed", "embargo_date": "2999-01-01"}
    platform.behaviours["/api/records/7/files/q/content"] = lambda handler, data: handler.answer(403, b"no")
    assert ingested("zenodo", url).status == "platform-restricted"
    result = ingested("zenodo", url, token="TEST_TOKEN")
    assert [file.status for file in result.manifest or ()] == ["success", "platform-restricted"]
    assert [(file.extra or {})["due"] for file in result.manifest or ()] == [parse_when("2999-01-01")] * 2
    platform.behaviours["/api/records/7/files/p/content"] = platform.behaviours["/api/records/7/files/q/content"]
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 100 * 86400))
    platform.bodies["/api/records/7"]["metadata"]["embargo_date"] = soon
    result = ingested("zenodo", url, token="TEST_TOKEN")
    assert (result.status, (result.due or "")[:10]) == ("platform-restricted", soon)
    platform.bodies["/api/records/7"]["metadata"]["embargo_date"] = "2999-01-01"
    platform.bodies["/api/records/7"]["files"] = []
    result = ingested("zenodo", url, token="TEST_TOKEN")
    assert (result.status, result.due) == ("platform-restricted", "2999-01-01T00:00:00Z")
    platform.bodies["/api/records/7"]["metadata"]["embargo_date"] = "2020-01-01"
    assert (ingested("zenodo", url, token="TEST_TOKEN").due or "") > time.strftime("%Y"), "it was not lifted"


def test_a_token_does_not_follow_a_redirect(folder: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "hush-hush")
    platforms = {"dataverse": {"hosts": [platform.host], "rate": "none", "token": "TEST_TOKEN"}}
    filesets = make_archive(folder, platform, fileset={"platforms": platforms})
    body = copy.deepcopy(DATAVERSE)
    row = body["data"]["latestVersion"]["files"][2]
    row["dataFile"] = {"id": 1, "filename": "p", "filesize": 3}
    body["data"]["latestVersion"]["files"] = [row]
    platform.bodies["/api/datasets/:persistentId/"] = body
    with playing() as bucket:
        bucket.files["/p"] = b"abc"
        again = platform.url.replace("127", "%3127", 1)  # the same host, spelled in another way
        platform.redirects["/api/access/datafile/1"] = f"{again}/again"
        platform.redirects["/again"] = f"{bucket.url.replace('://', f'://{platform.host}@')}/p?X-Amz-Signature=x"
        result = filesets.ingest(f"{platform.url}/dataset.xhtml?persistentId=doi:10.7910/DVN/ABCDEF")[0]
        assert result.status == "success-file", result.message
        for path in ("/api/access/datafile/1", "/again"):
            assert "hush-hush" in platform.headers[platform.requests.index(path)].values()
        assert all("hush-hush" not in one.values() for one in bucket.headers)


def test_a_dry_run_keeps_nothing(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    (result,) = filesets.ingest(url, dry_run=True)
    assert (result.status, result.file_count, result.ingest_strategy) == ("not-processed", 2, "web-fileset")
    (position,) = filesets.dump()
    assert (position["id"], position["run"], position["batch"]) == ("position", 0, 0)


def test_several_at_once_and_the_worst_counts(filesets: Filesets, platform: Platform) -> None:
    urls = [zenodo(platform, number, {f"p{number}": 100}, concept=number + 100) for number in range(1, 6)]
    found: list[str] = []
    counter = filesets.run([*urls, f"{platform.url}/records/99"], lambda r, f: found.append(r.status), jobs=4)
    assert sorted(found) == ["platform-404"] + ["success-file"] * 5
    assert exit_code(counter.statuses) is Exit.OPERATOR_ERROR
    assert exit_code(["success", "success-existing"]) is Exit.DONE
    assert exit_code(["success", "bad-request"]) is Exit.USAGE


def test_the_catalogue_can_be_made_anew(filesets: Filesets, platform: Platform) -> None:
    filesets.ingest(zenodo(platform, 7, {"p": 10, "q": 20}), f"{platform.url}/records/99")
    before = filesets.dump()
    other = open_catalogue("sqlite:///data/other.sqlite", base=filesets.config.base, create=True)
    with filesets.archive() as archive:
        rebuild(archive.layout, other)
    assert [json.loads(line) for line in dump(other, everything=True)] == before
    other.close()
    assert {line["collection"] for line in before} >= {"mf", "mo", "manifests", "ingests", "runs"}


def test_mongodb_holds_the_same(folder: Path, platform: Platform, mongodb_url: str) -> None:
    filesets = make_archive(folder, platform, database=mongodb_url)
    url = zenodo(platform, 7, {"p": 10, "q": 20})
    assert [result.status for result in filesets.ingest(url, url)] == ["success", "success-existing"]
    before = filesets.dump()
    other = open_catalogue("sqlite:///data/other.sqlite", base=filesets.config.base, create=True)
    with filesets.archive() as archive:
        rebuild(archive.layout, other)
    assert [json.loads(line) for line in dump(other, everything=True)] == before
    other.close()
    platform.bodies["/api/records/7"] = 410
    filesets.ingest(url)
    assert [line["kind"] for line in lines_of(filesets, "lost")] == ["fileset"]
    assert [line["what"] for line in lines_of(filesets, "changes", "--kind", "fileset")] == ["new", "lost"]


def bytes_in_store(filesets: Filesets) -> int:
    """The size of the files and manifests that the obi store has."""
    paths = [path for path in filesets.config.store_path.glob("[0-9]*/*/*/*") if not path.is_symlink()]
    return sum(path.stat().st_size for path in paths if not path.name.startswith((".", "RePEc")))


def test_an_archive_of_filesets_only(filesets: Filesets, platform: Platform) -> None:
    filesets.ingest(zenodo(platform, 7, {"p": 10, "q": 20}))
    with filesets.archive() as archive:
        (run,) = archive.catalogue.runs()
        found = status(archive)
        figures = metrics_of(found)
    assert found.stored_bytes == bytes_in_store(filesets)
    assert (found.last, found.newest.run if found.newest else 0) == (None, run.tist)
    assert figures.get_sample_value("archec_stored_bytes") == found.stored_bytes
    assert figures.get_sample_value("archec_files_due") == 0
    assert figures.get_sample_value("archec_next_due_time_seconds") is None

    def told(code: int, *words: str) -> str:
        done = archec_inline(filesets.config, *words)
        assert done.code == code, done.err
        return done.out.decode() + done.err

    assert f"no gathering yet, but {run.tist}" in told(0, "status")
    assert "no gathering yet" in told(7, "runs", "last")
    assert "no gathering yet" in told(7, "changes", "--since", "last")
    assert "/files/p/content" in told(0, "changes", "--since", str(run.tist))


def test_files_of_filesets_are_never_due(filesets: Filesets, platform: Platform) -> None:
    filesets.ingest(zenodo(platform, 7, {"p": 10}))
    with filesets.archive() as archive:
        assert list(due_files(archive.catalogue, filesets.config.fetch, int(time.time()))) == []
        assert status(archive).due == Due(0, more=False, next=None)
        fobi = find(archive.catalogue, f"{platform.url}/api/records/7/files/p/content")
    found = CliRunner().invoke(history, [fobi.id, "--config", str(filesets.config.file)])
    assert "visited with its data set only" in found.output


def test_gather_ingests_what_is_due(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    good = platform.bodies["/api/records/7"]
    platform.bodies["/api/records/7"] = 503
    (result,) = filesets.ingest(url)
    assert (result.status, result.due is None) == ("platform-http-error", False)
    platform.bodies["/api/records/7"] = good
    now = int(time.time())
    assert due_requests(filesets.config, now) == []
    (line,) = due_requests(filesets.config, now + 8 * 86400)
    assert line[1].base_url == url  # type: ignore[union-attr]
    platform.files["/p.csv"] = b"a,b\n"
    platform.bodies["/api/records/6"] = good
    filesets.ingest(f"{platform.url}/p.csv", direct=True)
    filesets.ingest(f"{platform.url}/records/6", follow_concept=True)
    zenodo(platform, 8, {"p": 11})
    platform.bodies["/api/records/6"] = platform.bodies["/api/records/8"]
    part = zenodo(platform, 20, {"q": 20, "r": 30}, concept=19)
    filesets.ingest(part, include=("q",), max_files=1)
    filesets.ingest(part, include=("s",))
    zenodo(platform, 20, {"q": 21, "r": 30}, concept=19)
    found: list[IngestResult] = []
    lines = due_requests(filesets.config, now + 400 * 86400)
    run_ingest(filesets.config, lines, IngestOptions(), Meter(), lambda result, file: found.append(result))
    assert {one.request["base_url"].removeprefix(platform.url): one.status for one in found} == {
        "/records/7": "success-existing", "/records/6": "success-file", "/p.csv": "success-existing",
        "/records/20": "success-file",
    }, "data files, concepts and selections are ingested as before"  # fmt: skip
    assert states(filesets) == ["7", "8"]
    assert not platform.sent["/api/records/20/files/r/content"]


def data_set(filesets: Filesets) -> None:
    """A data set of one archive."""
    folder = filesets.config.data_path / "aaa"
    folder.mkdir(parents=True)
    (folder / "aaaarch.rdf").write_text("Template-Type: ReDIF-Archive 1.0\nHandle: RePEc:aaa\nName: A\n")


@pytest.mark.parametrize("limit", [("--max-files", "3"), ("--max-bytes", "250kB")])
def test_gathering_and_its_filesets_have_one_budget(
    folder: Path, platform: Platform, limit: tuple[str, str]
) -> None:
    filesets = make_archive(folder, platform, fetch={"revisit_min": "0s", "revisit_max": "0s", "concurrency": 1})
    data_set(filesets)
    url = zenodo(platform, 7, {f"p{n}": 100_000 for n in range(6)})
    platform.behaviours["/api/records/7/files/p2/content"] = lambda handler, data: handler.answer(503, b"")
    assert filesets.ingest(url)[0].status == "success-partial"
    platform.behaviours.clear()
    platform.sent.clear()
    zenodo(platform, 7, {f"p{n}": 100_001 for n in range(6)})
    assert archec_inline(filesets.config, "gather", "--filesets", "--no-fetch").code == 2
    assert f"archec: 1 data set due: {url}\n" in archec_inline(filesets.config, "gather", "--filesets", "--dry-run").err
    assert b"data sets: 1 data set now, the first since" in archec_inline(filesets.config, "status").out
    done = archec_inline(filesets.config, "gather", "--filesets", "--max-time", "1ms")
    refused = json.loads(done.err.splitlines()[-1].removeprefix("archec-run "))
    assert [refused[name] for name in ("exit", "state", "requests", "data_set", "message")] == [
        5, "budget", 0, None, "the budget is exhausted: 1 data set not ingested",
    ]  # fmt: skip
    done = archec_inline(filesets.config, "gather", "--filesets", *limit)
    assert (done.code, b"filesets    1 budget" in done.out) == (5, True), done.err
    gathered, ingested = (json.loads(line[11:]) for line in done.err.splitlines() if line.startswith("archec-run "))
    assert (gathered["exit"], "filesets" in gathered, ingested["exit"]) == (0, False, 5)
    assert (ingested["filesets"], ingested["state"], ingested["data_set"]) == ({"budget": 1}, "budget", None)
    assert ingested["requests"] >= 3
    assert ingested["fetched_bytes"] > 200_000
    assert 200_000 < sum(platform.sent.values()) <= 400_000
    before = sum(platform.sent.values())
    assert archec_inline(filesets.config, "gather", "--filesets").code == 0
    assert sum(platform.sent.values()) - before < 600_006
    assert sum(platform.sent.values()) <= 700_000, "what was whole is not fetched again"


def test_a_data_set_that_always_fails_does_not_take_the_budget_of_the_others(folder: Path, platform: Platform) -> None:
    filesets = make_archive(folder, platform, fetch={"revisit_min": "0s"})
    urls = [zenodo(platform, n, {f"p{k}": 10 * n + k for k in range(3)}, concept=n + 1) for n in (10, 20, 30)]
    good = dict(platform.files)
    platform.files.clear()
    assert {one.status for one in filesets.ingest(*urls)} == {"error-platform-download"}
    platform.files.update({path: b"lies" if "/10/" in path else data for path, data in good.items()})
    for _ in range(5):
        lines = due_requests(filesets.config, int(time.time()) + 3600)
        run_ingest(filesets.config, lines, IngestOptions(), Meter(), lambda *found: None, budget=Budget(files=2))
    with filesets.archive() as archive:
        held = {one.base_url for one in archive.catalogue.ingests() if one.fileset}
    assert held == set(urls[1:])


def test_a_full_disk_is_the_status_and_what_was_whole_is_kept(filesets: Filesets, platform: Platform) -> None:
    first, second = zenodo(platform, 7, {"p": 10}), zenodo(platform, 9, {"q": 10}, concept=8)
    filesets.ingest(first)
    text = filesets.config.file.read_text()
    filesets.config.file.write_text(text + "min_free: 100%\n")
    process = ingesting(filesets, second)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    (result,) = map(json.loads, out.splitlines())
    assert (result["status"], result["request"]["base_url"]) == ("error-storage", second)
    assert archec_inline(filesets.config, "status").err == ""
    filesets.config.file.write_text(text)
    assert filesets.ingest(first)[0].status == "success-existing"
    assert filesets.ingest(second)[0].status == "success-file"


def test_a_database_that_does_not_answer_is_the_status(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    gone = "mongodb://127.0.0.1:1/archec?serverSelectionTimeoutMS=100"
    out, err = ingesting(filesets, url, ARCHEC_DATABASE=gone).communicate(timeout=60)
    (result,) = map(json.loads, out.splitlines())
    assert (result["status"], "no MongoDB server answers" in err) == ("error-storage", True)
    assert filesets.ingest(url)[0].status == "success-file"


def test_after_a_failure_of_the_storage_no_further_requests_are_read(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    filesets.config.file.write_text(filesets.config.file.read_text() + "min_free: 100%\n")
    process = ingesting(filesets, url, "--requests", "-", "--file-results", "/dev/null")
    assert (process.stdin, process.stdout) != (None, None)
    process.stdin.write(json.dumps({"base_url": url}) + "\n")  # type: ignore[union-attr]
    process.stdin.flush()  # type: ignore[union-attr]
    assert process.wait(30) == Exit.OPERATOR_ERROR, "although stdin is still open"
    out, _ = process.communicate()
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["error-storage"]


def test_a_disk_that_fills_within_a_file(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = zenodo(platform, 7, {"p": 1000, "q": 3_000_000, "r": 1000})
    write = Disk.write

    def full(self: Disk, fd: int, data: bytes, where: str) -> None:
        if len(data) > 100_000:
            raise StorageFull(f"{where}: No space left on device")
        write(self, fd, data, where)

    found: list[str] = []
    monkeypatch.setattr(Disk, "write", full)
    with pytest.raises(StorageFull):
        filesets.run([url], lambda result, file: found.append(result.status))
    monkeypatch.undo()
    assert found == ["error-storage"]
    store = Path(filesets.config.store_path)
    parts = {str(part.relative_to(store)) for part in store.rglob("*.part")}
    assert parts <= left_parts(filesets.config.work_path), "what is left is gone on with"
    filesets.asked()
    assert filesets.ingest(url)[0].status == "success"
    assert filesets.asked().count("/api/records/7/files/q/content") == 1
    assert not list(store.rglob("*.part"))


def test_two_requests_for_one_data_set_at_once_fetch_it_once(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {f"p{n}": 1000 for n in range(20)})
    results = filesets.ingest(url, f"{url}?download=1", jobs=2)
    assert sorted(result.status for result in results) == ["success", "success-existing"]
    assert set(platform.sent.values()) == {1000}


@pytest.mark.parametrize("at_once", ["data sets", "files"])
def test_a_file_that_is_named_twice_is_received_by_one_at_a_time(
    filesets: Filesets, platform: Platform, at_once: str
) -> None:
    """The second one never writes into what the first is receiving."""
    platform.files["/shared.bin"] = bytes_of("shared", 4_000_000)
    asked, is_second = itertools.count(), threading.Event()

    def in_halves(handler: Handler, data: bytes) -> None:
        rest = handler.head(data)
        handler.wfile.write(rest[:2_000_000])
        handler.wfile.flush()
        if next(asked):
            is_second.set()
        is_second.wait(0.5)
        handler.wfile.write(rest[2_000_000:])

    def meanwhile(handler: Handler, data: bytes) -> None:
        deadline = time.monotonic() + 10
        while not left_parts(filesets.config.work_path) and time.monotonic() < deadline:
            is_second.wait(0.01)
        handler.answer(200, data)

    platform.behaviours["/shared.bin"] = in_halves
    names = [["shared.bin"], ["p.bin", "shared.bin"]]
    if at_once == "files":
        names = [["shared.bin", *(f"p{n}.bin" for n in range(7)), "shared.bin"]]
    urls = []
    for number, files in enumerate(names):
        text = json.dumps({"@type": "Dataset", "distribution": [{"contentUrl": f"/{name}"} for name in files]})
        platform.bodies[f"/data/{number}"] = f'<script type="application/ld+json">{text}</script>'.encode()
        urls.append(f"{platform.url}/data/{number}")
        for name in files[:-1]:
            if name != "shared.bin":
                platform.files[f"/{name}"], platform.behaviours[f"/{name}"] = b"p", meanwhile
    assert [result.message for result in filesets.ingest(*urls, jobs=2) if not result.hit] == []
    assert held(filesets, f"{platform.url}/shared.bin") == platform.files["/shared.bin"]
    assert not list(Path(filesets.config.store_path).rglob("*.part"))


# -- kills ----------------------------------------------------------------------------------------


def ingesting(filesets: Filesets, url: str, *options: str, **environ: str) -> subprocess.Popen[str]:
    """``archec fileset ingest`` in a process of its own."""
    command = [sys.executable, "-m", "archec", "fileset", "ingest", url, *options]
    command += ["--config", str(filesets.config.file)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environ})


def test_the_command_prints_one_result_a_line(filesets: Filesets, platform: Platform, tmp_path: Path) -> None:
    url = zenodo(platform, 7, {"p\u2028\u2029\x85\u202eq": 10})
    requests = tmp_path / "requests"
    deep = "[" * 20_000 + "]" * 20_000
    requests.write_text(
        f'\ufeff{{"base_url": "{url}", "ingest_type": "dataset"}}\n\nno json\n{{"base_url": 7}}\n'
        f'{{"base_url": "{url}", "deep": {deep}}}\n{{"base_url": "{url}", "ingest_type": "\\u0000"}}'
    )
    files = tmp_path / "files"
    process = ingesting(filesets, url, "--requests", str(requests), "--file-results", str(files))
    out, err = process.communicate(timeout=60)
    statuses = [json.loads(line)["status"] for line in out.splitlines()]
    assert statuses == ["success-file", "success-existing", *["bad-request"] * 3, "success-existing"], err
    assert process.returncode == 2
    assert json.loads(out.splitlines()[0])["manifest"][0]["path"] == "p\u2028\u2029\x85\u202eq"
    assert "\u202e" not in out
    assert [json.loads(line)["ingest_type"] for line in files.read_text().splitlines()] == ["dataset-file"]


def test_a_line_without_an_end_takes_no_memory(filesets: Filesets, platform: Platform, tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    with requests.open("wb") as out:
        out.seek(600_000_000)
        line = b'{"base_url": "' + zenodo(platform, 7, {"p": 10}).encode() + b'"}'
        out.write(b"\n" + line + b"\n" + line + b" " * 10_000_000 + b"and so on\n" + b" " * 10_000_000 + line)
    with ingesting(filesets, "nonsense", "--requests", str(requests)) as process:
        assert process.stdout is not None
        found = list(map(json.loads, process.stdout))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert [one["status"] for one in found] == [*["bad-request"] * 2, "success-file", *["bad-request"] * 2]
    assert {found[number]["message"] for number in (1, 3, 4)} == {"the line is too long"}, "blanks count, too"
    # A process is born with the peak of its parent.
    assert used.ru_maxrss < max(400_000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 1)


def test_a_pipe_that_does_not_block_is_read_to_its_end(filesets: Filesets, platform: Platform) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    command = [sys.executable, "-m", "archec", "fileset", "ingest", "--requests", "-"]
    command += ["--config", str(filesets.config.file)]
    with subprocess.Popen(command, stdin=read, stdout=subprocess.PIPE) as process, os.fdopen(write, "wb", 0) as pipe:
        os.close(read)
        assert process.stdout is not None
        for number in (7, 8):
            url = zenodo(platform, number, {"p": number}, concept=number + 100)
            pipe.write(json.dumps({"base_url": url}).encode() + b"\n")
            assert json.loads(process.stdout.readline())["status"] == "success-file"
            with pytest.raises(subprocess.TimeoutExpired):  # it waits for more
                process.wait(0.3)
    assert process.returncode == 0


def test_results_that_nobody_reads_end_the_run_and_the_exit_code_says_so(
    filesets: Filesets, platform: Platform
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "archec", "fileset", "ingest", *(zenodo(platform, n, {"p": n}) for n in (7, 8))]
    command += ["--config", str(filesets.config.file)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (Exit.OPERATOR_ERROR, "archec: nobody reads the results on stdout\n")
    with filesets.archive() as archive:
        assert [(view.state, view.message) for view in runs(archive)] == [
            ("failed", "nobody reads the results on stdout")
        ]
    assert filesets.ingest(f"{platform.url}/records/7")[0].status == "success-existing"


def test_results_of_files_that_cannot_be_written_fail_the_run_by_name(filesets: Filesets, platform: Platform) -> None:
    urls = [zenodo(platform, number, {"p": 10}, concept=number + 100) for number in (7, 8)]
    process = ingesting(filesets, *urls, "--file-results", "/dev/full")
    out, err = process.communicate(timeout=60)
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["success-file", "error-storage"]
    assert (process.returncode, err.startswith("archec: /dev/full: No space left")) == (Exit.OPERATOR_ERROR, True)
    with filesets.archive() as archive:
        assert [view.state for view in runs(archive)] == ["failed"]


@pytest.mark.parametrize("at", [1, 37, 111, 180])
def test_a_kill_costs_nothing_that_was_whole(filesets: Filesets, platform: Platform, at: int) -> None:
    sizes = {f"d{n % 7}/f{n}": 3000 + n for n in range(200)}
    url = zenodo(platform, 7, sizes)
    process = ingesting(filesets, url)
    deadline = time.monotonic() + 60
    while len(platform.sent) < at and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    again = ingesting(filesets, url)
    out, err = again.communicate(timeout=60)
    (result,) = (json.loads(line) for line in out.splitlines())
    assert result["status"] == "success", (result["message"], err)
    assert [row["sha256"] for row in result["manifest"]] == [
        hashlib.sha256(bytes_of(path, size)).hexdigest() for path, size in sizes.items()
    ]
    twice = [path for path, sent in platform.sent.items() if sent > len(platform.files[path])]
    assert len(twice) <= 8, "what was in flight when it was killed"
    assert not list(Path(filesets.config.store_path).rglob("*.part"))
    assert not list(Path(filesets.config.work_path).glob("fileset.jsonl"))


def test_what_a_kill_left_between_its_names_and_the_journal_is_not_asked_for_again(
    filesets: Filesets, platform: Platform
) -> None:
    sizes = {f"f{n}": 3000 + n for n in range(20)}
    url = zenodo(platform, 7, sizes)
    for point in ("store.mid-rename:9", "store.after-fsync-dir:2"):
        process = ingesting(filesets, url, **killed_at(point))
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, point
    assert [one.status for one in filesets.ingest(url)] == ["success"]
    assert {path: sent for path, sent in platform.sent.items() if sent != len(platform.files[path])} == {}
    assert archec_inline(filesets.config, "check").code == 0
    assert archec_inline(filesets.config, "verify").code == 0


def test_what_a_kill_left_complete_is_kept_if_reading_it_again_is_interrupted(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another data set of the same run is finished meanwhile."""
    urls = [zenodo(platform, number, {"p": 3_000_000 + number}, concept=number + 100) for number in (7, 8)]
    process = ingesting(filesets, urls[0], **killed_at("store.before-sync"))
    process.communicate(timeout=60)
    reread, is_stopped = Temp.reread, threading.Event()

    def slow(temp: Temp) -> None:
        is_stopped.wait(10)
        reread(temp)

    def stop(result: IngestResult, _: object) -> None:
        asyncio.get_running_loop().call_later(0.1, is_stopped.set)
        raise UsageError("stop")

    monkeypatch.setattr(Temp, "reread", slow)
    with pytest.raises(UsageError):
        filesets.run(urls, stop, jobs=2)
    monkeypatch.undo()
    assert [result.status for result in filesets.ingest(urls[0])] == ["success-file", "success"]
    assert platform.sent == {f"/api/records/{number}/files/p/content": 3_000_000 + number for number in (7, 8)}
    assert not list(Path(filesets.config.store_path).rglob("*.part"))


@pytest.mark.parametrize("point", ["half", "catalogue.after-write:3"])
def test_a_kill_leaves_nothing_of_what_is_held_later(filesets: Filesets, platform: Platform, point: str) -> None:
    """Neither a part of a file whose bytes came by another URL, nor a line of a file that was noted already."""
    urls = [zenodo(platform, number, {"p": 3_000_000}, concept=number + 100) for number in (7, 8)]
    sent = [threading.Event(), threading.Event()]

    def halfway(handler: Handler, data: bytes) -> None:
        handler.wfile.write(handler.head(data)[:2_000_000])
        handler.wfile.flush()
        sent[f"{handler.path}".count("/8/")].set()
        handler.connection.recv(1)

    unfinished = filesets.config.work_path / "fileset.jsonl"
    if point == "half":
        for number in (7, 8):
            platform.behaviours[f"/api/records/{number}/files/p/content"] = halfway
        process = ingesting(filesets, urls[0], urls[1], "--jobs", "2")
        assert all(one.wait(60) for one in sent)
        deadline = time.monotonic() + 30
        while len(left_parts(filesets.config.work_path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        platform.behaviours.clear()
    else:
        process = ingesting(filesets, urls[0], **killed_at(point))
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    assert unfinished.exists()
    assert {result.status for result in filesets.ingest(*urls)} <= {"success-file", "success-existing", "success"}
    assert not list(Path(filesets.config.store_path).rglob("*.part"))
    assert not unfinished.exists()


def sent_in_part(handler: Handler, data: bytes) -> None:
    """Sends a part of the file, and nothing when it is asked for the rest."""
    if handler.headers.get("range"):
        handler.send_error(503)
    else:
        handler.wfile.write(handler.head(data)[:2_000_000])
        handler.close_connection = True


def test_what_is_left_of_a_download_that_nobody_continues_is_removed(filesets: Filesets, platform: Platform) -> None:
    url, other = zenodo(platform, 7, {"p": 3_000_000}), zenodo(platform, 9, {"q": 10}, concept=8)
    where = "/api/records/7/files/p/content"

    platform.behaviours[where] = sent_in_part
    assert filesets.ingest(url)[0].status == "error-platform-download"
    unfinished, store = filesets.config.work_path / "fileset.jsonl", Path(filesets.config.store_path)
    assert filesets.ingest(other)[0].status == "success-file"
    assert len(list(store.rglob("*.part"))) == 1, "the next ingest may continue it"
    age(unfinished)
    filesets.ingest(other)
    assert (list(store.rglob("*.part")), unfinished.exists()) == ([], False)
    platform.behaviours.clear()
    assert filesets.ingest(url)[0].status == "success-file"
    assert held(filesets, f"{platform.url}{where}") == bytes_of("p", 3_000_000)


def test_a_download_is_continued_after_more_than_a_month(filesets: Filesets, platform: Platform) -> None:
    url, where = zenodo(platform, 7, {"p": 3_000_000}), "/api/records/7/files/p/content"

    def continued(handler: Handler, data: bytes) -> None:
        start = int(handler.headers["range"].removeprefix("bytes=").removesuffix("-"))
        handler.answer(206, data[start:], **{"content-range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    platform.behaviours[where] = sent_in_part
    assert filesets.ingest(url)[0].status == "error-platform-download"
    age(filesets.config.work_path / "fileset.jsonl")
    platform.behaviours[where] = continued
    assert filesets.ingest(url)[0].status == "success-file"


def age(unfinished: Path) -> None:
    """Makes unfinished downloads 31 days older."""
    lines = [json.loads(line) for line in unfinished.read_bytes().splitlines() if line]
    aged = [{**line, "tist": line["tist"] - 31 * 86400} if "tist" in line else line for line in lines]
    unfinished.write_text("".join(f"{json.dumps(line)}\n" for line in aged))


def test_what_a_kill_left_of_a_file_that_was_replaced_is_fetched_anew(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"f": 3000})
    process = ingesting(filesets, url, **killed_at("store.after-fsync-dir:2"))
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    row, new = platform.bodies["/api/records/7"]["files"][0], bytes_of("new", 4000)
    row |= {"size": len(new), "checksum": f"md5:{hashlib.md5(new).hexdigest()}"}
    platform.files["/api/records/7/files/f/content"] = new
    assert [one.status for one in filesets.ingest(url)] == ["success-file", "success"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_instants_of_a_thousand_files(filesets: Filesets, platform: Platform, seed: int) -> None:
    draw = random.Random(seed)
    sizes = {f"d{n % 7}/f{n}": draw.randrange(20_000) for n in range(1000)}
    url = zenodo(platform, 7, sizes)
    whole: set[str] = set()

    def asked_again() -> set[str]:
        return whole.intersection(filesets.asked())

    for _ in range(8):
        process = ingesting(filesets, url, "--max-files", "1000")
        wanted, deadline = draw.randrange(1, 300), time.monotonic() + 60
        while len(platform.requests) < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(draw.random() / 200)
        process.kill()
        process.communicate()
        assert asked_again() == set()
        left = filesets.config.work_path / "fileset.jsonl"
        lines = [line for line in left.read_text().splitlines() if line.endswith("}")] if left.exists() else []
        for line in map(json.loads, lines):
            if line.get("sha256"):
                whole.add(line["url"].removeprefix(platform.url))
    assert len(whole) > 100
    out, err = ingesting(filesets, url, "--max-files", "1000").communicate(timeout=120)
    assert asked_again() == set()
    (result,) = map(json.loads, out.splitlines())
    assert result["status"] == "success" or (result["status"] == "success-existing" and len(whole) == 1000), err
    assert [(row["path"], row["sha256"]) for row in result["manifest"]] == [
        (path, hashlib.sha256(bytes_of(path, size)).hexdigest()) for path, size in sizes.items()
    ]
    assert not list(Path(filesets.config.store_path).rglob("*.part"))
    assert archec_inline(filesets.config, "check").code == 0


def test_what_was_part_goes_on_after_a_kill_and_a_disk_error(
    filesets: Filesets, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = zenodo(platform, 7, {"p": 8_000_000})
    where = "/api/records/7/files/p/content"
    sent = threading.Event()

    def slowly(handler: Handler, data: bytes) -> None:
        rest = handler.head(data)
        handler.wfile.write(rest[:4_000_000])
        handler.wfile.flush()
        sent.set()
        handler.connection.recv(1)

    platform.behaviours[where] = slowly
    first = zenodo(platform, 9, {"q": 10}, concept=8)
    process = ingesting(filesets, first, url)
    assert sent.wait(60)
    parts: list[Path] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(part.stat().st_size > 1_000_000 for part in parts):
        parts = list(Path(filesets.config.store_path).rglob("*.part"))
    with filesets.archive() as archive:
        assert [view.state for view in runs(archive)] == ["running"]
    process.kill()
    process.communicate()
    data_set(filesets)
    assert archec_inline(filesets.config, "gather", "--no-fetch").code == 0
    assert archec_inline(filesets.config, "check", "--fix").code == 0
    with filesets.archive() as archive:
        assert [view.state for view in runs(archive)] == ["done", "interrupted"]
        killed = list(runs(archive))[1]
    assert (killed.figures.stored_bytes, killed.figures.filesets) == (bytes_in_store(filesets), {"success-file": 1})

    taken: list[int] = []

    def unreadable(temp: Temp) -> None:
        lines = (filesets.config.work_path / "fileset.jsonl").read_text().splitlines()
        taken.append(json.loads(lines[-1])["tist"])
        raise StorageFailed("the disk does not answer")

    with monkeypatch.context() as disk:
        disk.setattr(Temp, "reread", unreadable)
        with pytest.raises(StorageFailed):
            filesets.ingest(url)
    with filesets.archive() as archive:
        assert taken == [next(iter(runs(archive))).run], "it is that run's from now on, for others of its data sets too"
    platform.behaviours.clear()
    platform.sent.clear()
    result = filesets.ingest(url)[0]
    assert result.status == "success-file"
    assert 0 < platform.sent[where] < 8_000_000
    assert held(filesets, f"{platform.url}{where}") == bytes_of("p", 8_000_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_part_goes_on_after_a_signal(folder: Path, platform: Platform, number: signal.Signals) -> None:
    filesets = make_archive(folder, platform, fetch={"idle_timeout": "10m"})  # the machine may be busy
    url = zenodo(platform, 7, {"p": 3_000_000, "q": 1000, "r": 4_000_000})

    def half(handler: Handler, data: bytes) -> None:
        rest = handler.head(data)
        handler.wfile.write(rest[: len(data) // 2])
        handler.wfile.flush()
        handler.connection.recv(1)

    large = [f"/api/records/7/files/{name}/content" for name in "pr"]
    platform.behaviours |= dict.fromkeys(large, half)
    process = ingesting(filesets, url, "--requests", "-", "--jobs", "2")  # the second waits for a line
    unfinished, store = filesets.config.work_path / "fileset.jsonl", Path(filesets.config.store_path)
    deadline = time.monotonic() + 300

    def is_part() -> bool:
        """Whether more than a MiB of each large file has been written, and the small one is whole."""
        parts = [part.stat().st_size for part in store.rglob("*.part")]
        whole = [line for line in unfinished.read_bytes().splitlines() if b'"sha256"' in line] if parts else []
        return sum(size > 1 << 20 for size in parts) == 2 and any(b"/q/" in line for line in whole)

    while not is_part():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1].startswith("archec: interrupted"), err
    assert "Traceback" not in err
    (stopped,) = lines_of(filesets, "runs")
    platform.behaviours.clear()
    platform.sent.clear()
    out, err = ingesting(filesets, url).communicate(timeout=300)
    assert json.loads(out)["status"] == "success", err
    closed = lines_of(filesets, "runs")[1]
    assert closed["stored_bytes"] == stopped["stored_bytes"] == 1000
    assert set(platform.sent) == set(large), "what was whole is not asked for again"
    assert all(0 < sent <= len(platform.files[path]) - (1 << 20) for path, sent in platform.sent.items())
    assert not list(Path(filesets.config.store_path).rglob("*.part"))


def test_an_ingest_by_force_that_was_stopped_is_continued(filesets: Filesets, platform: Platform) -> None:
    urls = [zenodo(platform, number, {"p": 10, "q": 20}, concept=number + 100) for number in (7, 8)]
    filesets.ingest(*urls)
    places = [f"/api/records/{number}/files/{name}/content" for number in (7, 8) for name in "pq"]
    is_asked = threading.Event()

    def silent(handler: Handler, data: bytes) -> None:
        is_asked.set()
        handler.connection.recv(1)

    platform.behaviours[places[-1]] = silent
    for _ in range(2):
        is_asked.clear()
        process = ingesting(filesets, *urls, "--force")
        assert is_asked.wait(60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    platform.behaviours.clear()
    filesets.asked()
    assert [one.status for one in filesets.ingest(*urls, force=True)] == ["success", "success"]
    assert set(filesets.asked()) & set(places) <= {places[-1], places[-2]}, "what was fetched before is not again"
    filesets.ingest(*urls, force=True)
    assert set(filesets.asked()) >= set(places), "but once it has ended, it is"


def test_a_second_ingest_at_the_same_time_says_who_holds_the_lock(filesets: Filesets, platform: Platform) -> None:
    url = zenodo(platform, 7, {"p": 10})
    with RunLock(open_store(filesets.config), "gather"):
        process = ingesting(filesets, url)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 4
        assert "gather" in err
        waiting = ingesting(filesets, url, "--wait")
    out, _ = waiting.communicate(timeout=60)
    assert json.loads(out)["status"] == "success-file"


def test_check_and_verify_find_nothing_wrong(filesets: Filesets, platform: Platform) -> None:
    filesets.ingest(zenodo(platform, 7, {"p": 10, "q": 20}), zenodo(platform, 9, {"p": 10, "r": 5}))
    for command in ("check", "verify"):
        process = subprocess.run(
            [sys.executable, "-m", "archec", command, "--config", str(filesets.config.file), "--json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr
