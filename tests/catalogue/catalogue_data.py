"""Documents for the catalogue's tests: plain builders, hostile ids, hypothesis strategies."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5, sha256

from hypothesis import strategies as st
from msgspec.structs import replace

from archec.catalogue.documents import canonical
from archec.catalogue.model import (
    TEXTS,
    Changes,
    Claim,
    Coverage,
    DataSet,
    HeldBack,
    HeldGroup,
    KeyedSet,
    Kind,
    Note,
    Obi,
    Position,
    Refipo,
    Run,
    Version,
    Visit,
    Visited,
)
from archec.history import History

HOSTILE = (
    "nul\0in the middle",
    "nul at the end\0",
    "\0",
    "$set",
    "a.b.$c",
    "'; DROP TABLE mi; --",
    "RePEc:aaa:" + "x" * 5000,
    "RePEc:aaa:" + "\U0001f4dc" * 1250,
    "RePEc:aaa:\u2013:dash",
    "\ud7ff\ue000\uffff\U00010000",
    "\x85\x80\x9f controls \x01\x1f\x7f",
    " blanks \n\t\r ",
    '{"json": "}"}',
    "%00%ff\\u0000",
)
"""Ids that engines have been known to cut, to sort wrongly, or to take for something else."""


def checksum(text: str) -> str:
    """The md5 of a text."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def state(text: str) -> str:
    """The sha256 of a text, which is the state of who holds it."""
    return sha256(text.encode()).hexdigest()


def version(text: str, size: int, type: str, title: str = "", refs: tuple[Refipo, ...] = ()) -> Version:  # noqa: A002
    """The version of an obi that holds ``text``."""
    return Version(state(text), checksum(text), size, checksum(f"text {text}"), type, title, refs)


def tobi(obi: str, *tists: int, stamp: int = 1, lost: bool = False) -> Obi:
    """A tobi with another content at each of ``tists``, the last one lost if asked for."""
    texts = {tist: f"{obi}@{tist}" for tist in tists or (100,)}
    entries: dict[int, str | None] = {tist: state(text) for tist, text in texts.items()}
    if lost:
        entries[max(entries)] = None
    versions = {}
    for tist, text in texts.items():
        refs = (Refipo(f"http://h/{tist}.pdf", "Application/pdf"), Refipo("http://h/all", "", "", "", "free"))
        if entries[tist] is not None:
            versions[state(text)] = version(text, 100, "ReDIF-Paper 1.0", "T", refs)
    notes = {tist: Note(tist + 1, "new", reason="of its own") for tist in entries}
    claims = tuple(Claim(tist, tist + 1, entries[tist], "aaa/x.rdf", 7, "utf-8", 5, True) for tist in sorted(entries))
    return Obi(
        obi, "tobi", History.of(entries), versions, notes, obi.upper(), stamp=stamp, claims=claims, place="aaa/x.rdf"
    )


def fobi(obi: str, *tists: int, due: int = 0, stamp: int = 1) -> Obi:
    """A visited fobi with another content at each of ``tists``; without any it never was held."""
    versions = {state(text): version(text, 5, "application/pdf") for text in (f"{obi}@{tist}" for tist in tists)}
    history = History.of({tist: state(f"{obi}@{tist}") for tist in tists})
    headers = (("etag", '"x"'), ("x-\0", "\u2013"))
    notes = {tist: Note(tist, "new", status=200, headers=headers) for tist in tists}
    visit = Visit(50, "new" if tists else "unreachable", 200)
    return Obi(obi, "fobi", history, versions, notes, visit=visit, due=due, stamp=stamp)


def bare(kind: Kind, obi: str, entries: dict[int, str | None] | None = None) -> Obi:
    """An obi of which no more is known than its history: {tist: the text that it holds, or None}."""
    states = {tist: None if text is None else state(text) for tist, text in (entries or {}).items()}
    return Obi(obi, kind, History.of(states))


def coverage(data: Coverage) -> KeyedSet:
    """A coverage under its key."""
    text = canonical(data)
    return KeyedSet(checksum(text.decode()), text)


def lot(number: int, *obis: Obi, **parts: object) -> Changes:
    """A lot that reaches batch ``number``."""
    return Changes(Position(1000, number, 2000 + number, state(f"batch {number}")), obis, **parts)  # type: ignore[arg-type]


# -- random lots ----------------------------------------------------------------------------------

_tists = st.integers(1, 9)
_contents = st.integers(0, 5).map(str)
_texts = st.one_of(st.none(), st.integers(0, 5).map(lambda i: checksum(str(i))))
_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_ids = st.one_of(st.sampled_from(["a", "b", "c", *HOSTILE]), _names)
_histories = st.dictionaries(_tists, st.one_of(st.none(), _contents), max_size=4)
_refs = st.lists(st.builds(Refipo, _names, _names, _names, _names, _names), max_size=3).map(tuple)
_headers = st.lists(st.tuples(_names, _names), max_size=2).map(tuple)
_claims = st.lists(
    st.builds(Claim, _tists, _tists, st.one_of(st.none(), _contents.map(state)), _names, _tists, _names, _tists),
    max_size=3,
    unique_by=lambda claim: claim.key,
).map(lambda claims: tuple(sorted(claims, key=lambda claim: claim.key)))
_held_back = st.builds(
    HeldBack, _tists, st.sampled_from([*TEXTS]),
    st.dictionaries(_names, st.builds(HeldGroup, _tists, _names), max_size=2),
)
_visits = st.builds(Visit, _tists, _names, st.just(200), _names, _names)


@st.composite
def obis(draw: st.DrawFn, kind: Kind) -> Obi:
    is_tobi = kind == "tobi"
    contents = draw(_histories)
    history = History.of({tist: None if text is None else state(text) for tist, text in contents.items()})
    versions = {
        state(text): Version(
            state(text), checksum(text), draw(st.integers(0, 2**40)), draw(_texts), draw(_names),
            draw(_names) if is_tobi else "", draw(_refs) if is_tobi else (),
        )
        for text in contents.values()
        if text is not None
    }  # fmt: skip
    notes = {}
    for tist in history.tists:
        note = Note(tist, draw(st.sampled_from(["new", "lost"])), draw(st.integers(0, 2)), draw(_names))
        if is_tobi:
            notes[tist] = replace(note, at=draw(_tists))
        else:
            notes[tist] = replace(note, status=200, target=draw(st.one_of(st.just(""), _ids)), headers=draw(_headers))
    tobi = {"handle": draw(_names), "claims": draw(_claims), "place": draw(_names)}
    rest = tobi if is_tobi else {"visit": draw(st.one_of(st.none(), _visits)), "due": draw(_tists)}
    return Obi(draw(_ids), kind, history, versions, notes, stamp=draw(_tists), **rest)


HANDLES = [KeyedSet(checksum(f"handles {n}"), b"RePEc:aaa\n" * n) for n in range(3)]
"""Lists of ids; the first is empty."""

COVERAGES: Sequence[KeyedSet] = [
    coverage(Coverage(complete=True)),
    coverage(Coverage(read=frozenset(HOSTILE))),
    coverage(Coverage(unread={"a.$\0": HANDLES[0].key, "": HANDLES[1].key})),
    coverage(Coverage(partly={"aaa": HANDLES[1].key, "b": "lacking"})),
]

_data_sets = st.builds(
    DataSet, _tists, _tists, _names, st.sampled_from(["", "lacking", *(item.key for item in COVERAGES)])
)
_states = st.sampled_from(["running", "done"])
_runs = st.builds(Run, _tists, st.just("gather"), _states, _tists, st.just("tarball"), _names)

lots = st.builds(
    Changes,
    st.builds(Position, _tists, _tists, _tists, st.integers(0, 9).map(lambda i: state(str(i))), _tists),
    st.lists(st.one_of(obis("tobi"), obis("fobi")), max_size=8, unique_by=lambda obi: (obi.kind, obi.id)),
    st.lists(st.builds(Visited, _ids, _visits, _tists), max_size=3),
    st.lists(_ids, max_size=4),
    st.lists(_runs, max_size=2),
    st.lists(_data_sets, max_size=2),
    st.lists(st.sampled_from([*HANDLES, *COVERAGES]), max_size=3),
    held_back=st.lists(_held_back, max_size=2),
)
"""Lots over few ids, tists and checksums, so that they meet."""
