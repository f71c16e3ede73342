"""The documents of the catalogue: an :class:`Obi` for each object, and the runs and data sets from which they follow.

The collections ``mi``, ``mo`` and ``mf`` have the obis of the kinds ``tobi``, ``fobi`` and ``fileset``; ``vi`` and
``vo`` map text checksums to the :class:`archec.catalogue.documents.TextPlace` where that text is held (Fort Lee paper,
"caching database"). All of it is derived from the run journals (design, invariant 3):
:mod:`archec.catalogue.journal_lines`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from archec.history import History
from archec.tist import MAX_TIST

Kind = Literal["tobi", "fobi", "fileset"]
KINDS: tuple[Kind, ...] = ("tobi", "fobi", "fileset")
"""Templates, files, and filesets: data sets of several files, whose states are their manifests."""

COLLECTION: Mapping[Kind, str] = {"tobi": "mi", "fobi": "mo", "fileset": "mf"}
"""The collections; ``mi`` and ``mo`` are the paper's names."""

TEXTS: Mapping[Kind, str] = {"tobi": "vi", "fobi": "vo"}

AT_ONCE = 1
"""The due date of a fobi that is to be visited immediately."""


class Refipo(NamedTuple):
    """Reference to file information: a File cluster of a tobi. ``url`` is the id of the fobi."""

    url: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Version(Struct, frozen=True, omit_defaults=True):
    """The contents of an obi in one state, identified by the sha256 of the bytes.

    ``size`` is in bytes, ``text`` the md5 of the text (None: it has none). ``type`` is a tobi's template type as
    written, or a fobi's sniffed media type. ``title`` and ``refs`` are those of a template; ``bad_urls`` counts its
    File-URLs that the archive cannot keep.
    """

    sha256: str
    md5: str
    size: int
    text: str | None = None
    type: str = ""
    title: str = ""
    refs: tuple[Refipo, ...] = ()
    bad_urls: int = 0


class Note(Struct, frozen=True, omit_defaults=True):
    """The origin of an entry of an obi's history.

    ``run`` is the software tist, ``kind`` one of ``new changed cosmetic file-url lost returned restated``. ``at`` is
    the tist under which the bytes are stored, 0 for the entry's own. For a loss, ``reason`` says why, and ``seen`` is
    the last tist at which a visit saw the contents of the fobi (for a tobi that follows from the coverage of data
    sets).

    The claims of a tobi say where its states were seen. For a fobi, ``target`` is the id to which the URL redirected
    (empty: the body is its own), ``headers`` are the stored response headers, and ``suspect`` says why the contents may
    not be the intended ones (a page instead of a PDF, an empty body).
    """

    run: int
    kind: str
    at: int = 0
    reason: str = ""
    status: int = 0
    target: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    suspect: str = ""
    seen: int = 0


class Claim(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What a data set, identified by (``tist``, ``run``), says about a tobi.

    ``state`` is the sha256 of the template that counts in it; None if it has none. ``place`` is the path of the
    template's file below the root of RePEc, ``line`` its line there, ``encoding`` the encoding of the file. ``at`` is
    the tist under which the bytes are stored, 0 for that of the data set. ``malformed``: the handle differs from the id
    not only in case, so it counts less than any well-formed one.

    A claim holds until the next one, for all data sets that would contain a template at its place
    (:func:`archec.archive.evidence.shows`). Data sets that say the same have no claim of their own.
    """

    tist: int
    run: int
    state: str | None
    place: str = ""
    line: int = 0
    encoding: str = ""
    at: int = 0
    malformed: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """The key of the data set, by which data sets are ordered."""
        return self.tist, self.run

    @property
    def bytes_at(self) -> int:
        """The tist under which the bytes are stored."""
        return self.at or self.tist

    def agrees(self, other: Claim | None) -> bool:
        """Whether another claim has the same state and place. None, like a claim without a state, means absence."""
        if other is None or other.state is None or self.state is None:
            return self.state is None and (other is None or other.state is None)
        return self.state == other.state and self.place == other.place


class Visit(Struct, frozen=True, omit_defaults=True):
    """The last visit to a fobi.

    ``outcome`` is one of the outcomes in section 5 of the design. ``gone`` is the number of consecutive visits that
    found the file gone, ``gone_since`` the tist of the first of them; ``fails`` is the number of consecutive failed
    visits. ``checked`` is the last tist at which contents were received or confirmed, ``read`` the time by the clock at
    which they were last received. ``etag`` and ``modified`` are sent with conditional requests. ``unnamed`` is the
    number of consecutive visits at which no template named the URL, ``tags`` are robots tags about archiving
    (``noarchive``), ``tls`` the exceptions that TLS needed. ``cosmetic``: the last received body has the same text as
    the held one, but other bytes, which were not stored; ``etag`` and ``modified`` are those of that body.

    The tists of runs may be ahead of the clock. If they are, ``clock`` is the time of the visit, and ``gone_clock``
    that of the first consecutive visit that found the file gone; otherwise both are 0.
    """

    tist: int
    outcome: str
    status: int = 0
    target: str = ""
    etag: str = ""
    modified: str = ""
    gone_since: int = 0
    gone: int = 0
    fails: int = 0
    checked: int = 0
    message: str = ""
    read: int = 0
    unnamed: int = 0
    tags: str = ""
    clock: int = 0
    gone_clock: int = 0
    tls: str = ""
    cosmetic: bool = False

    @property
    def when(self) -> int:
        """When the visit was made, by the clock."""
        return self.clock or self.tist

    @property
    def gone_when(self) -> int:
        """When the first of the consecutive visits found the file gone, by the clock."""
        return self.gone_clock or self.gone_since

    def following(self, before: Visit | None, *, failed: bool) -> Visit:
        """Returns this visit, which saw no contents, as the successor of ``before``: with what is known about the
        contents, and with updated counters of consecutive visits. ``failed``: it counts in ``fails``."""
        before = before or Visit(0, "")
        gone = self.outcome == "gone"
        first = gone and not before.gone_since
        return replace(
            self,
            etag=before.etag,
            modified=before.modified,
            gone_since=self.tist if first else before.gone_since,
            gone_clock=self.clock if first else before.gone_clock,
            gone=before.gone + gone,
            fails=before.fails + failed,
            checked=before.checked,
            read=before.read,
            tags=self.tags or before.tags,
            cosmetic=before.cosmetic,
        )


class HostState(Struct, frozen=True, omit_defaults=True):
    """The problems of a host (name and port as in URLs), as of the run ``run``.

    It must not be asked before ``until`` (Unix seconds, by the clock), and was given up in ``fails`` consecutive runs.
    ``reason`` is for people. A host without problems is not in the catalogue.
    """

    host: str
    run: int
    until: int = 0
    fails: int = 0
    reason: str = ""

    @property
    def clear(self) -> bool:
        """Whether the host has no problems."""
        return not (self.until or self.fails)


class Obi(Struct, frozen=True):
    """An object of interest with all its parts.

    ``versions`` are its contents by sha256, ``notes`` the notes on the entries of its history by tist. For a tobi,
    ``handle`` is its handle as written, ``claims`` are what data sets say about it, in their order, and ``place`` is
    where it was last seen; history and place are derived from the claims (:mod:`archec.archive.claims`).
    ``settled`` is a date at which only the place changed, because an older claim counted. ``due`` is the tist from
    which a fobi is to be visited again, 0 if it was never visited. ``stamp`` is the moment at which the last change
    became visible (seconds, monotonic).
    """

    id: str
    kind: Kind
    history: History = History()
    versions: Mapping[str, Version] = {}
    notes: Mapping[int, Note] = {}
    handle: str = ""
    visit: Visit | None = None
    due: int = 0
    stamp: int = 0
    claims: tuple[Claim, ...] = ()
    place: str = ""
    settled: int = 0

    @property
    def since(self) -> int:
        """The tist from which the newest claim and the newest state of a tobi agree; MAX_TIST if they do not.

        A data set from then on that says the same as the newest claim changes nothing.
        """
        if not self.claims:
            return MAX_TIST
        claim, state = self.claims[-1], self.history.states[-1] if self.history else None
        if claim.state != state or (state is not None and claim.place != self.place):
            return MAX_TIST
        return max(claim.tist, self.history.last or 0, self.settled)

    def claim_at(self, tist: int) -> Claim | None:
        """The claim for the entry at ``tist``; None if there is none with that date."""
        state = self.history.at(tist)
        return next((claim for claim in self.claims if claim.tist == tist and claim.state == state), None)

    def version_at(self, tist: int) -> Version | None:
        """The contents as of ``tist``; None if there were none."""
        return self.versions.get(self.history.at(tist) or "")

    @property
    def newest(self) -> Version | None:
        """The newest contents that were ever held."""
        return self.versions.get(self.history.last_held or "")

    @property
    def names(self) -> set[str]:
        """The fobis that any version in its history names."""
        states = set(self.history.states)
        return {ref.url for sha256, version in self.versions.items() if sha256 in states for ref in version.refs}

    def bytes_at(self, tist: int) -> int:
        """The tist under which the bytes of the entry at ``tist`` are stored."""
        note = self.notes.get(tist)
        return note.at or tist if note is not None else tist


class Visited(NamedTuple):
    """A visit to a fobi that changed nothing in its history."""

    id: str
    visit: Visit
    due: int


class KeyedSet(NamedTuple):
    """Bytes under a key that is derived from them, so that what several data sets have in common is stored once.

    Either a sorted list of ids, one per line, or a :class:`Coverage` as JSON text.
    """

    key: str
    data: bytes


class Coverage(Struct, frozen=True, omit_defaults=True):
    """What a data set covers. Places are paths below the root of RePEc.

    ``read`` are the archive directories (the first parts of places, "" for the root) that were listed completely; with
    ``complete``, missing ones count as read. ``unread`` maps files and directories that exist but could not be read to
    the sha256 of their bytes, or to the code of the problem if there are no bytes. ``partly`` does the same for files
    of which only some templates could be read. A data set that is not whole covers nothing.
    """

    complete: bool = False
    read: frozenset[str] = frozenset()
    unread: dict[str, str] = {}
    partly: dict[str, str] = {}


class DataSet(Struct, frozen=True, omit_defaults=True):
    """A data set: its date, the run that read it first, its name, the key of its :class:`Coverage`.

    ``sha256`` is that of a tarball, empty for a directory. A data set that is not ``whole`` was salvaged or was not
    noted completely; it counts only if there is no whole one of its date. ``retracted`` is the reason why it does not
    count at all.
    """

    tist: int
    run: int
    name: str = ""
    coverage: str = ""
    sha256: str = ""
    whole: bool = True
    retracted: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """The key by which data sets are ordered."""
        return self.tist, self.run


class HeldGroup(Struct, frozen=True):
    """Losses that are held back together: their number, and the key of the list of their ids."""

    losses: int
    ids: str


class HeldBack(Struct, frozen=True, omit_defaults=True):
    """The losses of one kind that a run held back and that were not accepted yet, by the archive, directory or host
    that would lose them. The newest record of a run and kind counts. For tobis ``run`` is that of the data set."""

    run: int
    kind: Kind
    groups: dict[str, HeldGroup] = {}


class Run(Struct, frozen=True):
    """A run: anything that appends to the journals.

    ``kind`` is ``gather`` for runs that read a data set. ``state`` is ``running``, ``done``, ``held-back``, ``budget``,
    ``network-down``, ``interrupted``, ``damaged`` or ``failed``. ``form`` is that of its data set, ``directory`` or
    ``tarball``, ``source`` its absolute path. ``options`` and ``report`` are JSON text; ``report`` is empty while it
    runs. ``retracted`` is the reason why its visits to files do not count.
    """

    tist: int
    kind: str = "gather"
    state: str = "running"
    data_set: int = 0
    form: str = "directory"
    source: str = ""
    options: str = "{}"
    report: str = ""
    retracted: str = ""


class FilesetManifestFile(Struct, frozen=True):
    """A file of a fileset, as listed by the platform and completed when it was fetched. Unknown values are None.

    ``path`` is as the platform sent it, ``size`` in bytes, checksums in lower-case hex digits. ``platform_url`` is the
    URL of the file on the platform, and the id of its fobi; ``terminal_url`` is where its redirects ended, without
    signatures, at ``terminal_dt`` (14 digits). ``extra`` has ``safe_path``, the path in exports, and other data.
    """

    path: str
    size: int | None = None
    md5: str | None = None
    sha1: str | None = None
    sha256: str | None = None
    mimetype: str | None = None
    extra: dict[str, Any] | None = None
    status: str | None = None
    platform_url: str | None = None
    terminal_url: str | None = None
    terminal_dt: str | None = None


class ManifestPart(Struct, frozen=True):
    """Consecutive files of the manifest with this sha256. ``first`` is the number of the first one, counted from 0."""

    sha256: str
    first: int
    files: tuple[FilesetManifestFile, ...]


class Ingest(Struct, frozen=True, omit_defaults=True):
    """The newest ingest of a base URL; ``ingest_type`` and ``base_url`` are as requested.

    ``tist`` is the software tist of its run, ``fileset`` the id of the obi (empty if none of it is held), ``state`` the
    sha256 of the manifest (empty if there is none), ``confirmed`` the last tist at which the platform listed the held
    ``state``, ``due`` the tist from which another attempt is useful (0: never).
    ``landing`` is the fobi of the landing page, ``answers`` are those of the platform's responses, ``cite_as`` is the
    URL for citations that the landing page states. ``dois`` are the DOIs from platforms, sorted, each with the
    platform's name of the version ("" for all versions). ``options`` are repeated by the next ingest when it is due.
    ``listed`` is the number of files that the platform lists, selected or not (0: unknown). The other fields are as in
    the result.
    """

    ingest_type: str
    base_url: str
    tist: int
    status: str
    platform_name: str = ""
    platform_domain: str = ""
    platform_id: str = ""
    platform_base_url: str = ""
    ingest_strategy: str = ""
    ingest_strategy_preferred: str = ""
    fileset: str = ""
    state: str = ""
    file_count: int | None = None
    total_size: int | None = None
    archiveorg_item_name: str = ""
    archiveorg_bundle_path: str = ""
    web_bundle_url: str = ""
    web_bundle_dt: str = ""
    landing: str = ""
    answers: tuple[str, ...] = ()
    message: str = ""
    due: int = 0
    cite_as: str = ""
    dois: tuple[tuple[str, str], ...] = ()
    options: dict[str, Any] = {}
    confirmed: int = 0
    listed: int = 0

    def is_due(self, now: int) -> bool:
        """Whether another attempt is useful at the tist ``now``."""
        return 0 < self.due <= now


class Position(NamedTuple):
    """The position up to which the catalogue has followed the journals: the run, and the number, stamp and sha256 of
    its last batch, which is the ``head`` of the chain. ``until``, if not 0, is the run at which it stops: the catalogue
    then shows the archive as of that run."""

    run: int = 0
    batch: int = 0
    stamp: int = 0
    head: str = ""
    until: int = 0


class RefusedDocument(NamedTuple):
    """A document that the database refused: what it is, its journal batch, and the message of the database. All other
    documents of the batch were written. ``id`` and ``state`` are those of a tobi, by its newest claim."""

    what: str
    run: int
    batch: int
    message: str
    id: str = ""
    state: str = ""


class Changes(Struct, frozen=True):
    """The changes of one journal batch, applied as a whole together with its position.

    ``obis`` has each obi at most once. They replace the known ones, but a fobi without a visit keeps the known visit.
    ``mentioned`` are ids of fobis to add if they are unknown. ``before`` are the known obis, by kind and id; None: they
    have not been read.
    """

    position: Position
    obis: Sequence[Obi] = ()
    visits: Sequence[Visited] = ()
    mentioned: Sequence[str] = ()
    runs: Sequence[Run] = ()
    data_sets: Sequence[DataSet] = ()
    sets: Sequence[KeyedSet] = ()
    manifests: Sequence[ManifestPart] = ()
    ingests: Sequence[Ingest] = ()
    hosts: Sequence[HostState] = ()
    refused: Sequence[RefusedDocument] = ()
    held_back: Sequence[HeldBack] = ()
    before: Mapping[Kind, Mapping[str, Obi]] | None = None
