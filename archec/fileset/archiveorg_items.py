"""Lists and uploads the files of items at archive.org, or at any service with its S3-like API."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from archec.config import FetchConfig, FilesetConfig
from archec.fileset.asking import HostTimes
from archec.fileset.fields import clean, parse
from archec.fileset.model import FilesetPlatformItem
from archec.fileset.platforms.base import host_of
from archec.fileset.status import PlatformError, UploadFailed
from archec.web.door import Sender, WebError, content
from archec.web.messages import raw_headers, wait_asked

ACCESS_KEY, SECRET_KEY = "ARCHEC_ARCHIVEORG_ACCESS_KEY", "ARCHEC_ARCHIVEORG_SECRET_KEY"
"""Environment variables of the keys. Unless both are set, nothing is uploaded."""
_PIECE = 1 << 20
_MOST_BYTES = 100_000_000
"""Size limit of a response in bytes; an item of 100,000 files has some 40 million."""
_BUSY = frozenset({429, 500, 502, 503, 504})
_SLOW_DOWN = frozenset({429, 503})
"""What such services answer to too many requests: no failures."""
_NAME = re.compile("[^a-z0-9-]+")
_LONGEST = 1000
_MOST_VALUES = 50
"""Headers for one field: servers accept some hundred of them in total."""


class ItemFile(NamedTuple):
    """A file in an item: its size in bytes and its MD5, if known."""

    size: int | None
    md5: str | None


class Items:
    """Lists items and uploads into them. ``sender`` has the policy for uploads.

    The methods that send requests raise UploadFailed.
    """

    def __init__(self, config: FilesetConfig, fetch: FetchConfig, sender: Sender, keys: tuple[str, str]) -> None:
        self._config, self._fetch, self._sender = config, fetch, sender
        self._hosts: dict[str, HostTimes] = {}
        self._secret = {"Authorization": f"LOW {keys[0]}:{keys[1]}"}

    async def files(self, item: str) -> dict[str, ItemFile]:
        """Returns the files of an item by their paths; none if there is no such item."""
        url = f"{self._config.archiveorg_url}/metadata/{quote(item)}"
        status, body = await self._answer("GET", url, {})
        if status == 404:
            return {}
        if status != 200:
            raise UploadFailed(f"{url}: HTTP {status}")
        try:
            found = parse(body)
            if found.is_object and not any(found.members()):  # archive.org's response if there is no such item
                return {}
            return {
                row["name"].text(): ItemFile(row["size"].whole_or_none(), row["md5"].text_or_none())
                for row in found["files"].items()
            }
        except PlatformError as error:
            raise UploadFailed(f"{url}: {error.message}") from error

    async def put(self, item: str, path: str, stream: BinaryIO, size: int, headers: Mapping[str, str]) -> None:
        """Uploads the ``size`` bytes of ``stream``. Creates the item if it does not exist."""
        url = f"{self._config.archiveorg_s3}/{quote(item)}/{quote(path)}"
        status, body = await self._answer(
            "PUT", url, {**self._secret, **headers, "Content-Length": str(size)}, stream
        )  # fmt: skip
        if status not in (200, 201):
            raise UploadFailed(f"{url}: HTTP {status}{_error_message(body)}")

    async def shown(self, item: str, wanted: Mapping[str, ItemFile]) -> None:
        """Waits until an item lists the files as they were sent, for at most ``fetch.max_delay``."""
        deadline, pause = time.monotonic() + self._fetch.max_delay, 0.1
        while wrong := differing(wanted, await self.files(item)):
            if time.monotonic() + pause > deadline:
                raise UploadFailed(f"{item} does not show {wrong[0][:200]} as uploaded")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)

    def headers(self, item: FilesetPlatformItem, size: int) -> dict[str, str]:
        """The headers that set the metadata of a new item. ``size`` is that of all its files, in bytes."""
        meta: dict[str, Any] = {
            "mediatype": "data", "title": item.title, "originalurl": item.web_base_url,
            **(item.archiveorg_item_meta or {}),
        }  # fmt: skip
        if self._config.archiveorg_collection:
            meta["collection"] = self._config.archiveorg_collection
        found = {
            "x-archive-auto-make-bucket": "1", "x-archive-queue-derive": "0", "x-archive-size-hint": str(size)
        }  # fmt: skip
        for name, value in meta.items():
            values = [one for one in (value if isinstance(value, list) else [value]) if one not in (None, "")]
            for number, one in enumerate(values[:_MOST_VALUES], 1):
                count = f"{number:02}" if len(values) > 1 else ""
                found[f"x-archive-meta{count}-{_NAME.sub('--', name.lower())}"] = _encoded(str(one))
        return found

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], stream: BinaryIO | None = None
    ) -> tuple[int, bytes]:
        """Sends a request and returns the status and body of the response. Temporary errors are retried
        ``fetch.retries`` times, unless the host has failed ``fetch.host_failures`` times in a row."""
        host = self._hosts.setdefault(host_of(url), HostTimes())
        for attempt in range(self._fetch.retries + 1):
            if why := host.given_up(host_of(url), self._fetch.host_failures):
                raise UploadFailed(why)
            last, wait = attempt == self._fetch.retries, 0.0
            try:
                pieces = _pieces(stream) if stream is not None else None
                async with aclosing(await self._sender.send(method, url, headers, pieces, named=True)) as response:
                    if response.status_code not in _BUSY:
                        host.answered()
                    elif response.status_code not in _SLOW_DOWN:
                        host.failed(f"HTTP {response.status_code}")
                    if response.status_code not in _BUSY or last:
                        return response.status_code, await content(response, _MOST_BYTES)
                    wait = wait_asked(raw_headers(response.raw), time.time())
            except WebError as error:
                host.failed(error.message)
                if last or error.lasting:
                    raise UploadFailed(f"{url}: {error.message}") from error
            if wait > self._fetch.max_delay:
                raise UploadFailed(f"{url}: asks to wait {wait:.0f} s")
            await asyncio.sleep(max(wait, min(2.0**attempt, 30.0) / 4))
        raise UploadFailed(f"{url}: does not answer")


def keys_of(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The keys for uploads; None if they are not set."""
    keys = environ.get(ACCESS_KEY, "").strip(), environ.get(SECRET_KEY, "").strip()
    return keys if all(key and key.isascii() and key.isprintable() for key in keys) else None


def differing(wanted: Mapping[str, ItemFile], there: Mapping[str, ItemFile]) -> list[str]:
    """The paths whose files an item lacks or has with another size or MD5."""
    return [path for path, file in wanted.items() if there.get(path) != file]


async def _pieces(stream: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    stream.seek(0)
    while data := await loop.run_in_executor(None, stream.read, _PIECE):
        yield data


def _encoded(value: str) -> str:
    """A metadata value as a header. Text that is not printable ASCII is escaped as archive.org expects."""
    text = " ".join(clean(value).split())[:_LONGEST]
    return text if text.isascii() and text.isprintable() else f"uri({quote(text)})"


def _error_message(body: bytes) -> str:
    """The message in the XML of an error, with a colon before it; empty if there is none."""
    found = re.search(r"<Message>([^<]{1,300})</Message>", body[:10_000].decode("utf-8", "replace"))
    return f": {clean(found[1])}" if found is not None else ""
