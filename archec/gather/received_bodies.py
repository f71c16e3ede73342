"""Bodies in the obi store under a run's tist, in progress or left by a killed run.

The hops of bodies that are not journalled yet are recorded in the work directory, so that a kill costs no requests:
when the run is resumed or closed, a body is adopted with its hop. This need not be durable: after a power failure lost
bodies are requested again, and a body is compared with the checksum of its hop before it is adopted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from archec.archive.commit import CommitItem
from archec.catalogue.model import Version
from archec.closing import Closing
from archec.digest import Digests
from archec.errors import CorruptArchive, NotHeld, storage_errors
from archec.files import open_file
from archec.gather.visits import Effect, VisitResult
from archec.store.layout import Layout
from archec.store.reader import digest
from archec.store.writer import HardLink, Placement, Redirect
from archec.text.sniff import HTML, decoded_head, sniff
from archec.web.outcome import Hop, Hops
from archec.workers.child import Inbox, Nonsense, encode, frame

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.I)
_HEAD = 4096
_PAGE = 1 << 16
"""Number of bytes at the beginning of a page that are searched for a login form and robots tags."""
_CHUNK = 1 << 20
_MOST = 32_000_000
"""Size of the file in bytes at which it is rewritten with the hops that are still needed."""
_decoder = msgspec.msgpack.Decoder(Hops)


def declared(kind: str, content_type: str) -> str:
    """A media type with the charset declared by the server, if any."""
    match = _CHARSET.search(content_type)
    return f"{kind}; charset={match[1]}" if match else kind


class Bodies:
    """Inspects bodies in the store. An *orphan* has its final name, but is in no journal."""

    def __init__(self, layout: Layout, run: int, *, resumed: bool) -> None:
        self._layout, self._run, self._resumed = layout, run, resumed

    def orphan(self, hop: Hop) -> Hop | None:
        """Bytes that a killed run stored but did not journal: they stay and are adopted.

        A dangling name (a redirect whose target was lost in a power failure) resolves again when the target has
        been fetched.
        """
        if not self._resumed or not os.path.lexists(self._path(self._layout.path(self._run, hop.url))):
            return None
        with suppress(NotHeld, CorruptArchive):
            found = digest(self._layout, self._run, hop.url)
            return replace(hop, md5=found.md5, sha256=found.sha256, size=found.size, temp="")
        return None

    def left(self, hop: Hop) -> Hop | None:
        """The hop of a killed run, if its body, temporary or stored, is complete; None otherwise."""
        if hop.kind != "body":
            return hop
        try:
            with open(self._path(hop.temp), "rb") as file:
                digests = Digests.of(file)
        except OSError:
            found = self.orphan(hop)
            return found if found is not None and found.sha256 == hop.sha256 else None
        return hop if digests.sha256 == hop.sha256 else None

    def own(self, hop: Hop, version: Version) -> VisitResult | None:
        """The body that a killed run stored for a URL before the URL began to redirect to ``version``, if any."""
        held = self.orphan(hop)
        if held is None or held.sha256 == version.sha256:
            return None
        found = Version(held.sha256, held.md5, held.size, None, self.kind(held))
        return VisitResult(held, version=found, drop_validators=True)

    def path(self, hop: Hop) -> str:
        """The path of a body, temporary or stored."""
        return self._path(hop.temp or self._layout.path(self._run, hop.url))

    def kind(self, hop: Hop) -> str:
        """The media type of a body by its first bytes."""
        if not hop.size:
            return hop.content_type or "application/octet-stream"
        encoding = hop.header("content-encoding")
        if hop.head and hop.temp:
            return sniff(hop.head, hop.content_type, encoding)
        with open(self.path(hop), "rb") as file:
            return sniff(file.read(_HEAD), hop.content_type, encoding)

    def page(self, hop: Hop, kind: str) -> bytes:
        """The beginning of a new page, decompressed; empty if the body is not a page or was stored before."""
        if kind not in HTML or not hop.temp:
            return b""
        with open(self._path(hop.temp), "rb") as file:
            return decoded_head(file.read(_PAGE), hop.header("content-encoding"))

    def item(self, effect: Effect, seen: VisitResult) -> CommitItem:
        """A visit's record, and the body, link or orphan that must be on disk before it is journalled."""
        record, hop = effect.record, seen.hop
        if not effect.keep:
            return CommitItem(record)
        if seen.target and seen.place is not None:
            return CommitItem(record, links=(Redirect(self._run, record.id, *seen.place),))
        if hop.temp:
            return CommitItem(record, Placement(hop.temp, self._run, record.id, hop.sha256))
        return CommitItem(record, restated=(HardLink(self._run, record.id, self._run, record.id),))

    def _path(self, relative: str) -> str:
        return os.path.join(self._layout.root, relative)


class ReceivedHops(Closing):
    """The hops of a run, for appending. The file is removed at the end of the block, when everything is committed."""

    def __init__(self, work: Path, run: int) -> None:
        self._path, self._size = received_path(work, run), 0
        with storage_errors(self._path):
            self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        with storage_errors(self._path):
            self._file.close()
            self._path.unlink(missing_ok=True)

    def add(self, hops: Iterable[Hop]) -> None:
        data = frame(encode(Hops([replace(hop, head=b"") for hop in hops])))
        with storage_errors(self._path):
            self._size += self._file.write(data)

    @property
    def is_large(self) -> bool:
        """Whether the file should be rewritten."""
        return self._size > _MOST

    def restart(self, hops: Iterable[Hop]) -> None:
        """Rewrites the file: everything except these hops is in the journal."""
        with storage_errors(self._path):
            self._file.truncate(0)
        self._size = 0
        self.add(hops)


def received_path(work: Path, run: int) -> Path:
    return work / f"{run}.received"


def received(work: Path, run: int) -> list[Hop]:
    """The hops left by a killed run, the last one for each URL; empty if there is no such file. An incomplete last line
    is skipped."""
    last: dict[str, Hop] = {}
    inbox = Inbox()
    with suppress(OSError, Nonsense, ValueError, RecursionError), open_file(received_path(work, run)) as file:
        while data := file.read(_CHUNK):
            for message in inbox.feed(data):
                last.update((hop.url, hop) for hop in _decoder.decode(message).items)
    return list(last.values())
