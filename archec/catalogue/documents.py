"""The parts of an obi in the database, small documents, the rows of lists, and their JSON; the same for every engine.

An obi is stored in parts, so that no document grows with the number of its versions, references or visits: a head, the
entries of its history, its versions, the references of its versions, its claims, its last visit. These functions split
obis into parts and assemble them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from archec.catalogue.model import Changes, Claim, Kind, Note, Obi, Version, Visited
from archec.errors import CatalogueError, CatalogueRefused
from archec.history import History
from archec.tist import MAX_TIST

_T = TypeVar("_T")
REBUILD = "'archec rebuild' rebuilds the catalogue"


def _whole_number(value: object) -> int:
    """Converts integers of a subclass to int: MongoDB returns integers of more than 32 bits in a class of its own."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"objects of type {type(value).__name__} are unsupported")


_encoder = msgspec.json.Encoder(enc_hook=_whole_number)
_canonical = msgspec.json.Encoder(enc_hook=_whole_number, order="sorted")
_history = msgspec.json.Decoder(dict[int, str | None])  # msgspec.json.decode() would analyse this type each time


def text_of(value: object) -> bytes:
    """Encodes a value as JSON without blanks, with fields in their own order. Raises CatalogueError if JSON cannot hold
    it."""
    return _encode(_encoder, value)


def canonical(value: object) -> bytes:
    """Encodes a value as JSON without blanks, with keys and sets sorted: equal values have equal text."""
    return _encode(_canonical, value)


def _encode(encoder: msgspec.json.Encoder, value: object) -> bytes:
    try:
        return encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise CatalogueError(f"cannot be written as JSON: {error}") from error


def read(kind: type[_T], text: bytes | str) -> _T:
    """Decodes the text of a document. Raises CatalogueError if it is not valid for ``kind``."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:  # of a damaged row it may be no text at all
        raise _broken(error) from error


def built(kind: type[_T], value: Mapping[str, Any] | Sequence[Any]) -> _T:
    """Converts a document of plain values to a ``kind``. Raises CatalogueError if it is not valid."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise CatalogueError(f"a catalogue document is not a {name}: {error}", hint=REBUILD) from error


def plain(value: object) -> dict[str, Any]:
    """Converts a struct to plain JSON values."""
    result: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    return result


def history_text(history: History) -> str:
    """Encodes a history as ``{tist: sha256 or null}``, in the order of tists."""
    return text_of(history.as_dict()).decode()


def history_of(text: bytes | str, obi: str) -> History:
    """Decodes the text of the history of an obi. Raises CatalogueError if it is not valid."""
    try:
        entries = _history.decode(text)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise CatalogueError(f"the history of {obi} in the catalogue is invalid: {error}", hint=REBUILD) from error
    return History.of(entries)


def _broken(error: Exception) -> CatalogueError:
    return CatalogueError(f"a catalogue document is broken: {error}", hint=REBUILD)


class ObiState(NamedTuple):
    """A row of the sorted scan with which a data set is merged.

    ``last`` and ``state`` are the newest entry of the history. ``h`` is the whole history as JSON text; None if the
    newest entry is the only one. ``place`` and ``since`` are those of the :class:`Obi`.
    """

    id: str
    last: int
    state: str | None
    h: str | None
    place: str = ""
    since: int = MAX_TIST


class TextPlace(NamedTuple):
    """The place where the text with the checksum ``text`` is held: the least (tist, id) of all of them."""

    text: str
    tist: int
    id: str


class DueFobi(NamedTuple):
    """A fobi that is due. ``due`` is 0 if it was never visited."""

    due: int
    id: str


class Moment(NamedTuple):
    """An incidence: the tist and the id of the obi. Lists are in the order of these pairs, and can be continued after
    any of them."""

    tist: int
    id: str


START = Moment(-1, "")
"""Less than any moment: the start of a list."""


class TobiFiles(NamedTuple):
    """The files that a tobi names. ``last`` is the tist of its newest entry, ``held`` whether it is held now, ``type``
    its template type as written. ``files`` are the fobis that its newest version names, each once, in its order,
    ``former`` those that only older versions name. ``bad_urls`` counts the bad File-URLs of the newest version."""

    id: str
    last: int
    held: bool
    type: str
    files: tuple[str, ...]
    former: tuple[str, ...] = ()
    bad_urls: int = 0


class FileState(NamedTuple):
    """The current state of a fobi. ``held`` is None if it was never held, ``type`` the sniffed type of its newest
    contents (empty: none), ``outcome`` that of its last visit (empty: never visited), ``last`` the tist of its newest
    entry (0: none)."""

    held: bool | None = None
    type: str = ""
    outcome: str = ""
    last: int = 0


class BytesPlace(NamedTuple):
    """The place where bytes are held: the first entry of an obi with these bytes, at ``tist``."""

    kind: Kind
    id: str
    tist: int
    size: int


_SHA256 = re.compile("[0-9a-f]{64}")
_MD5 = re.compile("[0-9a-f]{32}")

KEYS: Mapping[str, tuple[str, ...]] = {
    "runs": ("tist",),
    "data_sets": ("tist", "run"),
    "held": ("run", "kind"),
    "hosts": ("host",),
    "manifests": ("sha256", "n"),
    "ingests": ("base_url", "ingest_type"),
    "refused": ("run", "batch", "what"),
}
"""The collections of small documents, with the fields of their keys."""

Key = tuple[Any, ...]
"""The fields of a key, or of a row that begins with its key."""


class Head(NamedTuple):
    """The small part of an obi that scans and sorted lists read: fields of :class:`Obi`, and the type of its newest
    version. ``since`` is None except for tobis."""

    id: str
    history: History
    handle: str
    type: str
    stamp: int
    due: int
    place: str
    since: int | None
    settled: int

    @property
    def state(self) -> str | None:
        """The newest state; None if the obi is lost or was never held."""
        return self.history.states[-1] if self.history else None


class HistoryEntry(NamedTuple):
    """An entry of a history. ``back``: the obi was lost before it."""

    back: bool
    note: Note | None


class Content(NamedTuple):
    """A version of an obi. ``first`` is the first tist at which the obi held these bytes under its own name; None if it
    never did, as when it redirected to them."""

    version: Version
    first: int | None


class Parts(NamedTuple):
    """The parts of obis other than heads and visits, by the keys in :data:`PART_KEYS`."""

    entries: dict[Key, HistoryEntry]
    versions: dict[Key, Content]
    claims: dict[Key, Claim]
    refs: dict[Key, None]


PART_KEYS: Mapping[str, tuple[str, ...]] = {
    "entries": ("id", "kind", "tist"),
    "versions": ("id", "kind", "sha256"),
    "claims": ("id", "tist", "run"),
    "refs": ("url", "id"),
}
"""The fields of the keys of parts."""


class WrittenObis(NamedTuple):
    """What a batch writes for the obis of one kind. ``gone`` has the keys of the parts to remove, by the names of
    :class:`Parts`."""

    heads: list[Head]
    parts: Parts
    gone: dict[str, list[Key]]


def written(
    changes: Changes, kind: Kind, read_obis: Callable[[Kind, Collection[str]], Mapping[str, Obi]]
) -> WrittenObis:
    """Determines what a batch writes for the obis of one kind, in the order of ids, which is faster: their heads, and
    those parts that differ from the obis before it, which are read if the batch does not have them. Raises
    CatalogueRefused for an invalid checksum."""
    obis = {obi.id: obi for obi in changes.obis if obi.kind == kind}
    known = read_obis(kind, obis) if changes.before is None else changes.before.get(kind, {})
    heads: list[Head] = []
    old, new = Parts({}, {}, {}, {}), Parts({}, {}, {}, {})
    for _, obi in sorted(obis.items()):
        _check(obi)
        heads.append(_head_of(obi))
        _add_parts(new, obi)
        if obi.id in known:
            _add_parts(old, known[obi.id])
    gone: dict[str, list[Key]] = {}
    were = old._asdict()
    for name, parts in new._asdict().items():
        gone[name] = [key for key in were[name] if key not in parts]
        for key, part in were[name].items():
            if key in parts and parts[key] == part:
                del parts[key]
    return WrittenObis(heads, new, gone)


def _head_of(obi: Obi) -> Head:
    newest = obi.newest
    kind = newest.type if newest is not None else ""
    since = obi.since if obi.kind == "tobi" else None
    return Head(obi.id, obi.history, obi.handle, kind, obi.stamp, obi.due, obi.place, since, obi.settled)


def _add_parts(parts: Parts, obi: Obi) -> None:
    own, kind = obi.id, obi.kind
    first: dict[str, int] = {}
    before: str | None = ""
    for tist, state in obi.history:
        note = obi.notes.get(tist)
        parts.entries[own, kind, tist] = HistoryEntry(state is not None and before is None, note)
        if state is not None and (note is None or not note.target):
            first.setdefault(state, tist)
        before = state
    for sha256, version in obi.versions.items():
        parts.versions[own, kind, sha256] = Content(version, first.get(sha256))
    for claim in obi.claims:
        parts.claims[own, claim.tist, claim.run] = claim
    for url in obi.names:
        parts.refs[url, own] = None


def _check(obi: Obi) -> None:
    """Raises CatalogueRefused for a checksum that is not lower-case hex: engines sort and look them up by their
    bytes."""
    sha256s = {*obi.history.states, *obi.versions, *(claim.state for claim in obi.claims)}
    md5s = {checksum for version in obi.versions.values() for checksum in (version.md5, version.text)}
    for form, checksums in ((_SHA256, sha256s), (_MD5, md5s)):
        for checksum in checksums:
            if checksum is not None and not form.fullmatch(checksum):
                raise CatalogueRefused(f"{obi.id[:200]!r}: {checksum[:80]!r} is not a checksum")


def written_visits(changes: Changes) -> list[Visited]:
    """The visits that a batch writes, one for each fobi, ordered by id."""
    own = [Visited(obi.id, obi.visit, obi.due) for obi in changes.obis if obi.visit is not None]
    latest = {visited.id: visited for visited in (*changes.visits, *own)}
    return [latest[obi] for obi in sorted(latest)]


def documents_of(changes: Changes) -> Iterator[tuple[str, list[Key]]]:
    """Yields the small documents that a batch writes: for each collection its rows of key and text."""
    for name, items in (
        ("runs", changes.runs), ("data_sets", changes.data_sets), ("held", changes.held_back),
        ("ingests", changes.ingests), ("refused", changes.refused),
        ("hosts", [host for host in changes.hosts if not host.clear]),
    ):  # fmt: skip
        yield name, [(*(getattr(item, field) for field in KEYS[name]), text_of(item).decode()) for item in items]
    yield "manifests", [
        (part.sha256, n, text_of(file).decode())
        for part in changes.manifests for n, file in enumerate(part.files, part.first)
    ]  # fmt: skip


def versions_of(history: History, versions: Iterable[Version], claims: Iterable[Claim] = ()) -> dict[str, Version]:
    """The versions that a history or a claim names, by sha256."""
    states = {*history.states, *(claim.state for claim in claims)}
    return {version.sha256: version for version in sorted(versions, key=lambda v: v.sha256) if version.sha256 in states}


def tobi_files_of(id: str, history: History, known: Iterable[Version]) -> TobiFiles | None:  # noqa: A002
    """The files that a tobi names; None if it was never held."""
    newest = history.last_held
    if newest is None or history.last is None:
        return None
    versions = {version.sha256: version for version in known if version.sha256 in history.states}
    version = versions.pop(newest, None)
    files = dict.fromkeys([ref.url for ref in version.refs] if version is not None else ())
    former = {ref.url for other in versions.values() for ref in other.refs if ref.url not in files}
    kind, bad = (version.type, version.bad_urls) if version is not None else ("", 0)
    return TobiFiles(id, history.last, history.held, kind, tuple(files), tuple(sorted(former)), bad)
