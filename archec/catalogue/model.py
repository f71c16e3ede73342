"""What the catalogue holds: one :class:`Obi` per object, and the runs and data sets behind them.

``mi`` is the collection of the obis of kind ``tobi``, ``mo`` that of kind ``fobi``, ``mf`` that of kind ``fileset``;
``vi`` and ``vo`` map text checksums to the :class:`TextPlace` where that text is held (Fort Lee paper, "caching
database").
All of it derives from the run journals (design, invariant 3): :mod:`archec.catalogue.fold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
"""From this tist on a fobi is due that is to be visited at once."""

CORE = "all"
"""The core archive: its directory holds the archive and series templates of all archives."""


class Refipo(NamedTuple):
    """Reference to file information: one FILE cluster of a tobi; ``url`` is the fobi's id."""

    url: str
    format: str = ""
    function: str = ""
    size: str = ""
    restriction: str = ""


class Version(Struct, frozen=True, omit_defaults=True):
    """One content of an obi, identified by the sha256 of its bytes.

    ``size`` is in bytes, ``text`` the md5 of its text (None: it has none). ``type`` is a tobi's template type as
    written, a fobi's sniffed media type. ``title`` and ``refs`` are what a template says; ``bad_urls`` is how many of
    its File-URLs the archive cannot keep.
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
    """How an entry of an obi's history came about.

    ``run`` is the software tist, ``kind`` one of ``new changed cosmetic file-url lost returned restated``. ``at`` is
    the tist under which the bytes are, 0 for the entry's own. ``reason`` says why the obi is lost, ``seen`` when the
    last visit before saw a lost fobi's contents (of a tobi that follows from what data sets have looked at).

    Where a tobi's state was seen is in its claims. Of a fobi: ``target`` is the id that the URL redirected to (empty:
    the body is this URL's own), ``headers`` are the kept response headers, and ``suspect`` says why the contents may
    not be what was meant (a page in place of a PDF, an empty body).
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
    """What a data set says of a tobi, which is (``tist``, ``run``) of its :class:`DataSet`.

    ``state`` is the sha256 of the template that counts in it, None if it has none. ``place`` is the path of that
    template's file below the root of RePEc, ``line`` its line there, ``encoding`` how the file was read. ``at`` is the
    tist under which the bytes are, 0 for the data set's. ``malformed``: its handle differs from the id in more than
    case, so that it counts less than any that does not.

    A claim holds until the next one, for all data sets that would show a template kept at its place
    (:func:`archec.archive.absence.shows`); data sets that say nothing else have no claim of their own.
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
        """The data set's place in the order of data sets."""
        return self.tist, self.run

    @property
    def bytes_at(self) -> int:
        """The tist under which the bytes are."""
        return self.at or self.tist

    def agrees(self, other: Claim | None) -> bool:
        """Whether another claim says the same: the state, and the place where it was seen."""
        if other is None or other.state is None or self.state is None:
            return self.state is None and (other is None or other.state is None)
        return self.state == other.state and self.place == other.place


class Visit(Struct, frozen=True, omit_defaults=True):
    """The last visit to a fobi.

    ``outcome`` is a word of the vocabulary of outcomes (design, section 5); ``gone_since`` and ``gone`` are
    the tist of the first and the number of visits in a row that found it gone; ``fails`` the number
    of visits in a row that came to nothing; ``checked`` the last tist at which contents were seen
    or confirmed, ``read`` when they were last received, and not only confirmed, by the clock; ``etag`` and ``modified``
    go into conditional requests. ``unnamed`` is the number of visits in a row at which no template named the URL any
    more, ``tags`` what robots tags say of keeping it (``noarchive``), ``tls`` what TLS needed beyond what is usual.
    ``cosmetic``: what was received last has the text of what is held, but other bytes, which were not kept; ``etag``
    and ``modified`` are theirs.

    Tists of runs go on by seconds where one was ahead of the clock. ``clock`` is when the visit was made, and
    ``gone_clock`` when the first one in a row found it gone, where that is not the tist.
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
        """When the first visit in a row found the file gone, by the clock."""
        return self.gone_clock or self.gone_since

    def following(self, before: Visit | None, *, failed: bool) -> Visit:
        """This visit, which saw no contents, as the one after ``before``: what is known of the contents stays, and the
        visits in a row are counted on; ``failed``: it is one of those that came to nothing."""
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
    """What is known against a host (name and port as in URLs), as of the run ``run``.

    It is not to be asked before ``until`` (Unix seconds, by the clock), and was given up in ``fails`` runs in a row.
    ``reason`` is for people. A host against which nothing is known any more is in no catalogue.
    """

    host: str
    run: int
    until: int = 0
    fails: int = 0
    reason: str = ""

    @property
    def clear(self) -> bool:
        """Whether nothing is known against it."""
        return not (self.until or self.fails)


@dataclass(frozen=True, slots=True)
class Obi:
    """An object of interest, whole.

    ``versions`` are its contents by sha256, ``notes`` speak of the entries of its history. ``handle`` is a tobi's
    handle as written, ``claims`` what data sets say of it, in their order, and ``place`` where it was last seen, as far
    as the archive believes them (:mod:`archec.archive.conclusions`): history and place follow from the claims.
    ``settled`` is a date at which only the place changed, as a claim was believed that was older. ``due`` is the tist
    from which a fobi is to be visited again, 0 if it never was. ``stamp`` is the moment at which the last change became
    visible (seconds, monotonic).
    """

    id: str
    kind: Kind
    history: History = field(default_factory=History)
    versions: Mapping[str, Version] = field(default_factory=dict)
    notes: Mapping[int, Note] = field(default_factory=dict)
    handle: str = ""
    visit: Visit | None = None
    due: int = 0
    stamp: int = 0
    claims: tuple[Claim, ...] = ()
    place: str = ""
    settled: int = 0

    @property
    def since(self) -> int:
        """From which tist on the newest claim and the newest state of a tobi agree; MAX_TIST where they do not.

        No data set from then on changes anything by saying what the newest claim says.
        """
        if not self.claims:
            return MAX_TIST
        claim, state = self.claims[-1], self.history.states[-1] if self.history else None
        if claim.state != state or (state is not None and claim.place != self.place):
            return MAX_TIST
        return max(claim.tist, self.history.last or 0, self.settled)

    def claim_at(self, tist: int) -> Claim | None:
        """The claim behind the entry at ``tist``, None if a data set of another time has it."""
        state = self.history.at(tist)
        return next((claim for claim in self.claims if claim.tist == tist and claim.state == state), None)

    def version_at(self, tist: int) -> Version | None:
        """The contents in force at ``tist``; None if there are none."""
        return self.versions.get(self.history.at(tist) or "")

    @property
    def newest(self) -> Version | None:
        """The newest contents that were ever held."""
        return self.versions.get(self.history.last_held or "")

    @property
    def names(self) -> set[str]:
        """The fobis that any version of its history names."""
        states = set(self.history.states)
        return {ref.url for sha256, version in self.versions.items() if sha256 in states for ref in version.refs}

    def bytes_at(self, tist: int) -> int:
        """The tist under which the bytes of the entry at ``tist`` are."""
        note = self.notes.get(tist)
        return note.at or tist if note is not None else tist


class Visited(NamedTuple):
    """A visit to a fobi that changed nothing in its history."""

    id: str
    visit: Visit
    due: int


class KeyedSet(NamedTuple):
    """Bytes under a key that follows from them, so that what many data sets have in common is kept once.

    A list of ids is text, one a line, sorted; a :class:`Coverage` is JSON text.
    """

    key: str
    data: bytes


class Coverage(Struct, frozen=True, omit_defaults=True):
    """What a data set has looked at. Places are paths below the root of RePEc.

    ``read`` are the archives' directories (the first parts of places, "" for the root) whose listings came to an end;
    with ``complete`` those that are missing count as well. ``unread`` maps the files and directories that were there
    and could not be read to the sha256 of their bytes, or to the code of the problem if there are none; ``partly``
    does the same for files of which some templates could be read. One that is not whole has looked at nothing.
    """

    complete: bool = False
    read: frozenset[str] = frozenset()
    unread: dict[str, str] = {}
    partly: dict[str, str] = {}


class DataSet(Struct, frozen=True, omit_defaults=True):
    """One data set: its date, the run that read it first, its name, the key of its :class:`Coverage`.

    ``sha256`` is that of a tarball's bytes, empty for a directory. One that is not ``whole`` was salvaged or was not
    noted to its end; it speaks only where no whole one of its date does. ``retracted`` is the reason why it does not
    speak at all.
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
        """Its place in the order of data sets."""
        return self.tist, self.run


class HeldGroup(Struct, frozen=True):
    """Losses that are held back together: how many, and the key of the list of their ids."""

    losses: int
    ids: str


class HeldBack(Struct, frozen=True, omit_defaults=True):
    """The losses of one kind that a run held back and no one has accepted yet, by the archive, the directory or the
    host that would lose them. The newest one of a run and kind counts. For tobis ``run`` is that of the data set."""

    run: int
    kind: Kind
    groups: dict[str, HeldGroup] = {}


class Run(Struct, frozen=True):
    """One run: something that appended to the journals.

    ``kind`` is ``gather`` for what reads a data set. ``state``: ``running``, ``done``, ``held-back``, ``budget``,
    ``network-down``, ``interrupted``, ``damaged`` or ``failed``. ``form`` is that of its data set, ``directory`` or
    ``tarball``, ``source`` its absolute path; ``options`` and ``report`` are JSON text, ``report`` empty while it
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
    """One file of a fileset, as the platform told of it and as it was found to be; None: not known.

    ``path`` is as the platform sent it, ``size`` in bytes, the checksums in lower-case hex digits. ``platform_url`` is
    where the platform says that the file is, and the id of its fobi; ``terminal_url`` where its redirects led, without
    signatures, at ``terminal_dt`` (14 digits). ``extra`` has ``safe_path``, which exports use, and what else is known.
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
    """Consecutive files of the manifest with this sha256; ``first`` is the number of the first of them, from 0."""

    sha256: str
    first: int
    files: tuple[FilesetManifestFile, ...]


class Ingest(Struct, frozen=True, omit_defaults=True):
    """What the newest ingest of a base URL came to; ``ingest_type`` and ``base_url`` are as requested.

    ``tist`` is the software tist of its run, ``fileset`` the id of the obi (empty if nothing of it is held) and
    ``state`` the sha256 of the manifest (empty if there is none), ``due`` the tist from which on it is worth another
    try (0: never). ``landing`` is the fobi of the landing page, ``answers`` those of what the platform said,
    ``cite_as`` the URL under which the landing page wants to be cited, ``dois`` the DOIs that platforms gave, sorted,
    each with the platform's id of the version, or "" for all versions; ``options`` what it was asked to do, as the next
    ingest of what is due repeats it. The rest is as in the result.
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


class Position(NamedTuple):
    """How far the catalogue has followed the journals: run, number of its last batch, its stamp, and its sha256, which
    is the head of the chain of batches. ``until``, if it is not 0, is the run behind which it does not follow them, as
    it says what the archive believed then."""

    run: int = 0
    batch: int = 0
    stamp: int = 0
    head: str = ""
    until: int = 0


class Refused(NamedTuple):
    """Something of a journal batch that the database would not take: what it is, the batch, and what the database
    said. Everything else of the batch is there. ``id`` and ``state`` are those of a tobi by its newest claim."""

    what: str
    run: int
    batch: int
    message: str
    id: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """What one journal batch writes, applied as a whole with the position reached.

    ``obis`` replace what is known of them, but a fobi without a visit keeps the one that is known. ``mentioned`` are
    ids of fobis to add if they are not there yet.
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
    refused: Sequence[Refused] = ()
    held_back: Sequence[HeldBack] = ()
