"""WARC files as crawlers write them, with the lines of their index."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from pathlib import Path
from typing import Any

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from archec.urlkey import urlkey


class Crawl:
    """Writes records into a WARC file, and remembers their lines."""

    def __init__(self, path: Path, *, gzip: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._name = path.name
        self._writer = WARCWriter(self._file, gzip=gzip)
        self.lines: list[bytes] = []

    def response(
        self, url: str, stamp: str, body: bytes, *, status: str = "200 OK", headers: dict[str, str] | None = None
    ) -> Any:
        """A response."""
        fields = {"Content-Type": "text/html", "Content-Length": str(len(body)), **(headers or {})}
        head = StatusAndHeaders(status, list(fields.items()), protocol="HTTP/1.1")
        record = self._writer.create_warc_record(
            url, "response", io.BytesIO(body), warc_headers_dict={"WARC-Date": date(stamp)}, http_headers=head
        )
        return self._add(record, url, stamp, status[:3], fields["Content-Type"])

    def request(self, url: str, stamp: str, body: bytes, mime: str, method: str = "POST") -> None:
        """A request, which no index has."""
        fields = [("Content-Type", mime), ("Content-Length", str(len(body)))]
        head = StatusAndHeaders(f"{method} / HTTP/1.1", fields, is_http_request=True)
        record = self._writer.create_warc_record(
            url, "request", io.BytesIO(body), warc_headers_dict={"WARC-Date": date(stamp)}, http_headers=head
        )
        with contextlib.closing(record.raw_stream):
            self._writer.write_record(record)

    def revisit(self, url: str, stamp: str, original: Any, *, status: str = "200 OK") -> Any:
        """A revisit of another record, without an HTTP header if ``status`` is empty."""
        head = StatusAndHeaders(status, [("Content-Type", "text/html"), ("X-Visit", "second")], protocol="HTTP/1.1")
        record = self._writer.create_revisit_record(
            url,
            original.rec_headers.get_header("WARC-Payload-Digest"),
            original.rec_headers.get_header("WARC-Target-URI"),
            original.rec_headers.get_header("WARC-Date"),
            http_headers=head if status else None,
            warc_headers_dict={
                "WARC-Date": date(stamp),
                "WARC-Refers-To": original.rec_headers.get_header("WARC-Record-ID"),
            },
        )
        return self._add(record, url, stamp, status[:3], "warc/revisit")

    def other(self, kind: str, url: str, stamp: str, body: bytes, mime: str, **headers: str) -> Any:
        """A resource, metadata or conversion."""
        record = self._writer.create_warc_record(
            url, kind, io.BytesIO(body), warc_content_type=mime, warc_headers_dict={"WARC-Date": date(stamp), **headers}
        )
        return self._add(record, url, stamp, "", mime)

    def octets(self, url: str, stamp: str, http: bytes) -> None:
        """A response of bytes that warcio does not write."""
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: {date(stamp)}\r\n"
        head += f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
        self.raw(gzip.compress(head.encode() + http + b"\r\n\r\n"), url, stamp)

    def raw(self, data: bytes, url: str, stamp: str) -> None:
        """Any bytes in the place of a record."""
        self._line(url, stamp, self._file.tell(), len(data), {"mime": "text/html", "status": "200"})
        self._file.write(data)

    def _add(self, record: Any, url: str, stamp: str, status: str, mime: str) -> Any:
        offset = self._file.tell()
        with contextlib.closing(record.raw_stream):
            self._writer.write_record(record)
        digest = record.rec_headers.get_header("WARC-Payload-Digest") or "-"
        fields = {"mime": mime, **({"status": status} if status else {}), "digest": digest}
        self._line(url, stamp, offset, self._file.tell() - offset, fields)
        return record

    def _line(self, url: str, stamp: str, offset: int, length: int, fields: dict[str, str]) -> None:
        value = {"url": url, **fields, "length": str(length), "offset": str(offset), "filename": self._name}
        self.lines.append(f"{urlkey(url)} {stamp} {json.dumps(value)}".encode())

    def close(self) -> list[bytes]:
        """Closes the file; the lines of its index."""
        self._file.close()
        return self.lines


def date(stamp: str) -> str:
    """A timestamp as WARC-Date."""
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}Z"
