"""Documents for the catalogue's tests: plain builders, hostile ids, hypothesis strategies."""

from __future__ import annotations

from hashlib import md5

from hypothesis import strategies as st

from archec.catalogue.model import (
    Changes,
    DataSet,
    Fobi,
    FobiNote,
    FobiVersion,
    Position,
    Refipo,
    Run,
    SeenSet,
    TextPlace,
    Tobi,
    TobiNote,
    TobiVersion,
    Visit,
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
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def tobi(obi: str, *tists: int, stamp: int = 1, lost: bool = False) -> Tobi:
    """A tobi with another content at each of ``tists``, the last one lost if asked for."""
    entries: dict[int, str | None] = {tist: checksum(f"{obi}@{tist}") for tist in tists or (100,)}
    versions = {}
    for tist, state in entries.items():
        refs = (Refipo(f"http://h/{tist}.pdf", "Application/pdf"), Refipo("http://h/all", "", "", "", "free"))
        versions[str(state)] = TobiVersion(str(state), 100, checksum(f"text {state}"), "ReDIF-Paper 1.0", "T", refs)
    if lost:
        entries[max(entries)] = None
    notes = {tist: TobiNote(tist + 1, "new", "RePEc/aaa/x.rdf", 7, "utf-8") for tist in entries}
    return Tobi(obi, obi.upper(), History.of(entries), versions, notes, stamp)


def fobi(obi: str, *tists: int, due: int = 0, stamp: int = 1) -> Fobi:
    """A visited fobi with another content at each of ``tists``; without any it never was held."""
    entries: dict[int, str | None] = {tist: checksum(f"{obi}@{tist}") for tist in tists}
    versions = {str(s): FobiVersion(str(s), 5, checksum(f"text {s}"), "application/pdf") for s in entries.values()}
    notes = {t: FobiNote(t, "new", 200, headers=(("etag", '"x"'), ("x-\0", "\u2013"))) for t in entries}
    return Fobi(
        obi, History.of(entries), versions, notes, Visit(50, "new" if tists else "unreachable", 200), due, stamp
    )


def lot(number: int, **parts: object) -> Changes:
    """A lot that reaches batch ``number``."""
    return Changes(Position(1000, number, 2000 + number), **parts)  # type: ignore[arg-type]


# -- random lots ----------------------------------------------------------------------------------

_tists = st.integers(1, 9)
_md5s = st.integers(0, 5).map(lambda i: checksum(str(i)))
_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_ids = st.one_of(st.sampled_from(["a", "b", "c", *HOSTILE]), _names)
_histories = st.dictionaries(_tists, st.one_of(st.none(), _md5s), max_size=4).map(History.of)
_refs = st.lists(st.builds(Refipo, _names, _names, _names, _names, _names), max_size=3).map(tuple)


@st.composite
def tobis(draw: st.DrawFn) -> Tobi:
    history = draw(_histories)
    versions = {
        state: TobiVersion(state, draw(st.integers(0, 2**40)), draw(_md5s), draw(_names), draw(_names), draw(_refs))
        for state in history.states
        if state is not None
    }
    notes = {tist: TobiNote(tist, draw(st.sampled_from(["new", "lost"])), draw(_names)) for tist in history.tists}
    return Tobi(draw(_ids), draw(_names), history, versions, notes, draw(_tists))


@st.composite
def fobis(draw: st.DrawFn) -> Fobi:
    history = draw(_histories)
    versions = {
        state: FobiVersion(state, draw(_tists), draw(st.one_of(st.none(), _md5s)), draw(_names))
        for state in history.states
        if state is not None
    }
    headers = st.lists(st.tuples(_names, _names), max_size=2).map(tuple)
    notes = {tist: FobiNote(tist, "new", 200, draw(_names), draw(headers)) for tist in history.tists}
    visit = draw(st.one_of(st.none(), st.builds(Visit, _tists, _names, st.just(200), _names, _names)))
    return Fobi(draw(_ids), history, versions, notes, visit, draw(_tists), draw(_tists))


_places = st.builds(TextPlace, _md5s, _tists, _ids)
_seen = st.binary(max_size=40).map(lambda ids: SeenSet(checksum(ids.hex()), ids))
_data_sets = st.builds(
    DataSet,
    _tists,
    st.lists(_names, max_size=2).map(tuple),
    st.booleans(),
    st.frozensets(_ids, max_size=3),
    st.dictionaries(_ids, st.lists(_md5s, max_size=2).map(tuple), max_size=2),
)
_runs = st.builds(Run, _tists, st.sampled_from(["running", "done"]), _tists, st.just("tarball"), _names)

lots = st.builds(
    Changes,
    st.builds(Position, _tists, _tists, _tists),
    st.lists(tobis(), max_size=4),
    st.lists(fobis(), max_size=4),
    st.lists(_ids, max_size=4),
    st.lists(_places, max_size=4),
    st.lists(_places, max_size=4),
    st.lists(_runs, max_size=2),
    st.lists(_data_sets, max_size=2),
    st.lists(_seen, max_size=2),
)
"""Lots over few ids, tists and checksums, so that they meet."""
