"""WARC records and CDXJ lines by themselves: headers, ids, digests, and indexes read as they were written."""

from __future__ import annotations

import base64
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archec.errors import CorruptArchive
from archec.warc.cdxj import index_line, prefix, read_index
from archec.warc.records import Observation, RecordKind, contents_of, digest_of, http_head, record_id

URL = "http://h.example/a"


def test_record_ids_are_the_same_always() -> None:
    found = record_id(1352481230, "RePEc:aaa:sss:1", "resource")
    assert found == "<urn:uuid:62fc42d2-d1d5-570a-9fd5-79f62405fb83>"
    assert len({record_id(t, i, k) for t in (1, 11) for i in ("a", "1:a") for k in ("resource", "revisit")}) == 8


def head(kind: RecordKind = "response", **more: Any) -> bytes:
    fields: dict[str, Any] = {"size": 3, "status": 200, "headers": (), "target": ""} | more
    found = Observation(
        kind, URL, 1, 1, "a" * 32, fields["size"], "text/html", fields["status"], fields["headers"], fields["target"]
    )
    data: bytes = http_head(found).headers_buff
    return data


def test_header_is_what_was_recorded() -> None:
    recorded = (("content-type", "text/html"), ("content-length", "3"), ("etag", '"x"'))
    assert head(headers=recorded) == (
        b'HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 3\r\netag: "x"\r\n\r\n'
    )


def test_a_length_that_does_not_fit_steps_aside() -> None:
    found = head(headers=(("content-length", "99"),))
    assert found == b"HTTP/1.1 200 OK\r\nX-Archive-Orig-content-length: 99\r\ncontent-length: 3\r\n\r\n"


def test_a_redirect_always_says_where_to() -> None:
    found = head("redirect", status=301, target="http://h.example/b")
    assert found == b"HTTP/1.1 301 Moved Permanently\r\ncontent-length: 0\r\nlocation: http://h.example/b\r\n\r\n"
    found = head("redirect", status=0, headers=(("location", "/b"),), target="http://h.example/b")
    assert found == b"HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n"


@given(st.text(max_size=40), st.integers(0, 999))
@example(";\x80=0", 200)
def test_no_header_value_breaks_out(value: str, status: int) -> None:
    found = head(status=status, headers=(("server", value),))
    assert found.count(b"\r\n") == 4
    assert found.endswith(b"\r\n\r\n")
    assert found.isascii()


@pytest.mark.parametrize("size", [0, 1, 1000, 8 << 20, 9_999_999])
def test_contents_have_the_digests_of_the_bytes(tmp_path: Path, size: int) -> None:
    """Small files and those that are too large for memory."""
    data = (bytes(range(250)) * (size // 250 + 1))[:size]
    (tmp_path / "file").write_bytes(data)
    for start in (b"", b"HTTP/1.1 200 OK\r\n\r\n"):
        found = contents_of(open(tmp_path / "file", "rb"), start)  # noqa: SIM115 - closed below
        with found.stream:
            assert found.stream.read() == data
        assert found.size == size
        assert (found.md5, found.sha256) == (hashlib.md5(data).hexdigest(), hashlib.sha256(data).hexdigest())
        assert found.payload == digest_of(data)
        assert found.payload == "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()
        assert found.block == digest_of(start + data)


def line(kind: RecordKind = "response", tist: int = 1_000_000_000, filename: str = "aaa/aaa+00001.warc.gz") -> bytes:
    seen = Observation(kind, URL, tist, 1, "a" * 32, 3, "text/html", 200, (("Content-Type", "text/html; charset=x"),))
    return index_line(prefix(URL, tist), seen, "sha1:X", 12, 345, filename)


def test_an_index_line() -> None:
    assert line() == (
        b'example,h)/a 20010909014640 {"url":"http://h.example/a","mime":"text/html","status":"200","digest":"sha1:X",'
        b'"length":"345","offset":"12","filename":"aaa/aaa+00001.warc.gz"}\n'
    )
    assert b'"mime":"text/html","digest"' in line("resource")
    assert b'"mime":"warc/revisit","digest"' in line("revisit")


def test_an_index_is_read_as_it_was_written() -> None:
    lines = [line(tist=1_000_000_000), line("revisit", 1_000_000_001), line("resource", 1_000_000_002, "b/b.warc.gz")]
    found = list(read_index(io.BytesIO(b"".join(lines)), "x.cdxj"))
    assert [one.line for one in found] == lines
    assert [one.prefix for one in found] == [prefix(URL, 1_000_000_000 + n) for n in range(3)]
    assert [one.filename for one in found] == [b"aaa/aaa+00001.warc.gz"] * 2 + [b"b/b.warc.gz"]
    assert [one.payload() for one in found] == ["sha1:X", "", "sha1:X"]


@given(st.binary(max_size=60))
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptArchive, match=r"x\.cdxj:2: "):
        list(read_index(io.BytesIO(line() + data + b"\n" + line()), "x.cdxj"))
