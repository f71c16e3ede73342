"""Visits: the table of those in progress, how far redirects are followed, and the effect of a hop on a fobi's history
(pure rules of design section 5). :mod:`archec.gather.due` says when it is due again.

A URL is in the table from the moment it is queued for the fetchers until its visit ends, in one of four states: it is
being *fetched*; it *redirects* and waits for the result of its target; the *text* of its body is being extracted; its
host was *silent*, and it waits for another host to show that the network is up. Each URL is fetched at most once in a
run; URLs that redirect to it wait for it. Only URLs in progress and the last visits are kept in memory: older ones are
in the catalogue.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from archec.catalogue.interface import Catalogue
from archec.catalogue.journal_lines import ObiChange
from archec.catalogue.model import AT_ONCE, Note, Obi, Version, Visit
from archec.config import Config
from archec.gather.due import next_due
from archec.gather.options import RunTime
from archec.gather.suspects import suspicion
from archec.web.messages import TLS_FIELD, http_date
from archec.web.outcome import Hop

_COMPRESSED = re.compile(r"([-;:]|--)(gzip|br|deflate|zstd)$")
State = Literal["fetched", "redirects", "text", "silent"]
_ENDED = {
    "redirect-loop": "its redirects form a loop",
    "too-many-redirects": "more redirects than fetch.max_redirects",
}
_RECENT = 2000
"""Number of visits kept in memory, more than a batch has; older ones are read from the catalogue."""


class VisitResult(Struct, frozen=True):
    """The result of a visit to a URL.

    ``outcome`` is set for a failure and empty if the contents are known; then ``version`` describes them.
    ``unchanged``: the server answered 304. ``cosmetic``: ``version`` is what is held instead of the server's bytes,
    which have the same text. ``target`` is the id that the URL redirected to; ``place`` is the (tist, id)
    under which the contents are already held, or None for a body that is still to be stored. ``drop_validators``: the
    stored body does not belong to these headers. ``hops``: number of redirects from the URL to the contents.
    ``suspect`` says why the contents may not be the intended ones; ``tags`` are the robots tags.
    """

    hop: Hop
    outcome: str = ""
    version: Version | None = None
    unchanged: bool = False
    cosmetic: bool = False
    target: str = ""
    place: tuple[int, str] | None = None
    message: str = ""
    drop_validators: bool = False
    hops: int = 0
    suspect: str = ""
    tags: str = ""


class Effect(Struct, frozen=True):
    """The record of a visit, and whether its contents are to be stored under the run's tist.

    ``hops`` and ``deferred`` are those of the visit, for URLs that redirect here.
    """

    record: ObiChange
    keep: bool
    version: Version | None
    place: tuple[int, str] | None
    hops: int = 0
    deferred: bool = False

    @property
    def visit(self) -> Visit:
        return self.record.visit or Visit(0, "")


def visit_for(config: Config, fobi: Obi, seen: VisitResult, at: RunTime, *, unnamed: bool = False) -> Effect:
    """The effect of a visit on a fobi: its outcome, its incidence, if any, and when it is due again. ``unnamed``: no
    template mentions it any more. Losses are not decided here: see :func:`archec.archive.file_loss.loss_of`."""
    state, version, before, keep = fobi.history.at(at.run), seen.version, fobi.visit, False
    held = fobi.versions.get(state) if state is not None else None
    message = seen.message or seen.hop.message
    if seen.outcome:
        outcome = seen.outcome
    elif version is None:
        outcome, message = "server-error", "304 for a file that is not held"
    elif state == version.sha256:
        outcome = "cosmetic" if seen.cosmetic else "not-modified" if seen.unchanged else "same"
    elif state is None:
        outcome, keep = "new", True
    elif held is not None and held.text is not None and held.text == version.text:
        outcome, keep = "cosmetic", config.store_cosmetic
    else:
        outcome, keep = "changed", True
    visit = Visit(
        at.run,
        outcome,
        status=seen.hop.status,
        target=seen.target,
        message=message[:500],
        unnamed=(before.unnamed if before is not None else 0) + 1 if unnamed else 0,
        tags=seen.tags,
        clock=at.clock,
        tls=seen.hop.header(TLS_FIELD),
    )
    if seen.outcome or version is None:
        return _failed(config, fobi, seen, visit)
    return _held(config, fobi, seen, visit, version, state, keep=keep)


def _held(
    config: Config, fobi: Obi, seen: VisitResult, visit: Visit, version: Version, state: str | None, *, keep: bool
) -> Effect:
    before, hop, run = fobi.visit, seen.hop, visit.tist
    validators = not seen.drop_validators and not seen.target
    etag = hop.header("etag") if validators else ""
    modified = hop.header("last-modified") if validators else ""
    read, tags = visit.when, visit.tags
    if seen.unchanged and not keep and before is not None:
        read, tags = before.read, tags or before.tags
        if validators:
            etag, modified = etag or before.etag, modified or before.modified
    cosmetic = visit.outcome == "cosmetic" and not keep
    visit = replace(visit, etag=etag, modified=modified, checked=run, read=read, tags=tags, cosmetic=cosmetic)
    if not keep:
        due = next_due(config, visit, max(fobi.history.noted, default=None), lost=False)
        kept = fobi.versions.get(state) if state is not None else None
        entry = fobi.history.entry_at(run)
        place = (entry[0], fobi.id) if entry is not None and kept is not None else seen.place
        return Effect(ObiChange("fobi", fobi.id, visit=visit, due=due), False, kept or version, place)
    due = next_due(config, visit, run, lost=False)
    suspect = suspicion(fobi, version, state) or seen.suspect
    kind = "returned" if state is None and len(fobi.history) else visit.outcome
    note = Note(run, kind, status=hop.status, target=seen.target, headers=hop.headers, suspect=suspect)
    record = ObiChange(
        "fobi", fobi.id, put={run: version.sha256}, version=version, notes={run: note}, visit=visit, due=due
    )
    return Effect(record, True, version, (run, fobi.id))


def _failed(config: Config, fobi: Obi, seen: VisitResult, visit: Visit) -> Effect:
    deferred = seen.hop.deferred
    visit = visit.following(fobi.visit, failed=not deferred)
    due = next_due(config, visit, None, lost=not fobi.history.held, deferred=deferred)
    return Effect(ObiChange("fobi", fobi.id, visit=visit, due=due), False, None, None)


def doubtful(fobi: Obi, why: str) -> ObiChange:
    """The record for a fobi whose last visit may have received the answer to another request. What was noted is
    dropped, the visit does not count towards a loss, and the fobi is due immediately."""
    run = fobi.visit.tist if fobi.visit is not None else 0
    drop = tuple(tist for tist, note in fobi.notes.items() if note.run == run)
    visit = Visit(run, "doubtful", message=why[:500])
    return ObiChange("fobi", fobi.id, drop=drop, visit=visit, due=AT_ONCE)


def contradicts(hop: Hop, visit: Visit, version: Version) -> bool:
    """Whether a 304 contradicts what is held and so cannot be trusted.

    A ``Content-Length`` of 0, weak tags and tags that differ only by a compression suffix are not contradictions.
    """
    length = hop.header("content-length")
    if length.isascii() and length.isdecimal() and int(length[:18]) not in (0, version.size):
        return not hop.header("content-encoding")
    sent, known = hop.header("etag"), visit.etag
    if sent and known and not sent.startswith("W/") and not known.startswith("W/") and _bare(sent) != _bare(known):
        return True
    modified, before = http_date(hop.header("last-modified")), http_date(visit.modified)
    return modified is not None and before is not None and modified != before


def _bare(etag: str) -> str:
    return _COMPRESSED.sub("", etag.strip('"'))


@dataclass(slots=True)
class Active:
    """A URL in progress.

    ``known``: the catalogue has a document of it; ``planned``: it is in the plan, not only the target of another URL;
    ``unnamed``: no template mentions it any more. ``hop`` is its answer, once received; ``result`` is the result of
    its body, without the extracted text. ``target`` is the URL it redirects to, ``waiting`` are the URLs that redirect
    to it.
    """

    fobi: Obi
    known: bool
    planned: bool
    unnamed: bool = False
    state: State = "fetched"
    hop: Hop | None = None
    result: VisitResult | None = None
    target: str = ""
    waiting: list[str] = field(default_factory=list)

    @property
    def answer(self) -> Hop:
        """Its answer; a failure if there is none."""
        return self.hop or Hop(self.fobi.id, "failed")


class UnderWay:
    """The table. ``max_redirects`` bounds the chains of redirects."""

    def __init__(self, max_redirects: int) -> None:
        self._max_redirects = max_redirects
        self._table: dict[str, Active] = {}
        self._states: Counter[State] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._table

    def count(self, state: State) -> int:
        return self._states[state]

    def get(self, url: str, *states: State) -> Active | None:
        """The URL, if it is in one of these states."""
        active = self._table.get(url)
        return active if active is not None and active.state in states else None

    def __iter__(self) -> Iterator[Active]:
        return iter(self._table.values())

    def in_state(self, state: State) -> Iterator[Active]:
        return (active for active in self._table.values() if active.state == state)

    def begin(
        self, fobi: Obi, *, known: bool, planned: bool, unnamed: bool = False, waiting: Active | None = None
    ) -> None:
        """Adds a URL that is queued for the fetchers; ``waiting`` is the one that redirects to it."""
        self._table[fobi.id] = active = Active(fobi, known, planned, unnamed)
        self._states["fetched"] += 1
        if waiting is not None:
            active.waiting.append(waiting.fobi.id)

    def plan(self, url: str) -> bool:
        """Whether a URL of the plan is already in progress, as the target of another; it then becomes planned, too."""
        active = self._table.get(url)
        if active is None:
            return False
        active.planned = True
        return True

    def redirect(self, active: Active, hop: Hop) -> VisitResult | None:
        """Marks a URL as redirecting and waiting for its target. Returns None, or the result that ends the chain.

        URLs that wait for it may then be too far from the end; that is checked when the result is passed on.
        """
        target = hop.location
        if self._depth(active) >= self._max_redirects:
            return _ended(hop, target, "too-many-redirects")
        step: str = target
        while step:
            if step == active.fobi.id:
                return _ended(hop, target, "redirect-loop")
            following = self._table.get(step)
            step = following.target if following is not None else ""
        active.hop, active.target = hop, target
        self._move(active, "redirects")
        goal = self._table.get(target)
        if goal is not None:
            goal.waiting.append(active.fobi.id)
        return None

    def reached(self, hop: Hop, target: str, effect: Effect, end: Hop) -> VisitResult:
        """The result of a URL that answered with ``hop`` and redirects to ``target``, given the effect and the answer
        of the visit to that."""
        visit = effect.visit
        if effect.version is None:
            failed = replace(hop, status=end.status or hop.status, deferred=end.deferred)
            return VisitResult(failed, outcome=visit.outcome, target=target, message=end.message)
        if effect.hops >= self._max_redirects:
            return _ended(hop, target, "too-many-redirects")
        return VisitResult(
            hop, version=effect.version, unchanged=visit.outcome == "not-modified", cosmetic=visit.cosmetic,
            target=target, place=effect.place, hops=effect.hops + 1, tags=visit.tags,
        )  # fmt: skip

    def _depth(self, active: Active) -> int:
        """The number of redirects from the nearest URL that the archive knows; unknown URLs are only hops of others."""
        depth, layer = 0, [active]
        while layer and not any(one.known for one in layer):
            layer = [waiting for one in layer for waiting in self._waiting(one)]
            depth += 1
        return depth

    def extract(self, active: Active, result: VisitResult) -> None:
        """Marks a URL as waiting for the text of its body."""
        active.hop, active.result = result.hop, result
        self._move(active, "text")

    def silence(self, active: Active, hop: Hop) -> None:
        """Marks a URL whose host did not answer."""
        active.hop = hop
        self._move(active, "silent")

    def requeue(self, active: Active) -> None:
        """Queues a URL for the fetchers again; its previous result does not count."""
        active.hop, active.result, active.target = None, None, ""
        self._move(active, "fetched")

    def end(self, active: Active) -> list[Active]:
        """Ends a visit. Removes the URL, and those that waited for it, from the table, and returns the latter."""
        self._drop(active)
        return [self._drop(one) for one in self._waiting(active)]

    def _waiting(self, active: Active) -> list[Active]:
        """The URLs that still redirect to this one: they may have been queued for the fetchers again."""
        found = (self.get(url, "redirects") for url in dict.fromkeys(active.waiting))
        return [one for one in found if one is not None and one.target == active.fobi.id]

    def forget(self, state: State) -> int:
        """Drops all URLs in a state and returns their number."""
        forgotten = list(self.in_state(state))
        for active in forgotten:
            self._drop(active)
        return len(forgotten)

    def _drop(self, active: Active) -> Active:
        if self._table.pop(active.fobi.id, None) is not None:
            self._states[active.state] -= 1
        return active

    def _move(self, active: Active, state: State) -> None:
        self._states[active.state] -= 1
        active.state = state
        self._states[state] += 1


def _ended(hop: Hop, target: str, outcome: str) -> VisitResult:
    return VisitResult(hop, outcome=outcome, target=target, message=_ENDED[outcome])


class VisitLog:
    """The effects of a run's visits: the last ones from memory, the others from the catalogue."""

    def __init__(self, catalogue: Catalogue, run: int, max_redirects: int) -> None:
        self._catalogue, self._run, self._max_redirects = catalogue, run, max_redirects
        self._recent: OrderedDict[str, Effect] = OrderedDict()

    def remember(self, url: str, effect: Effect) -> None:
        self._recent[url] = effect
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def forget(self, url: str) -> list[str]:
        """Drops the effect of a visit; returns the last visits that redirected to it."""
        self._recent.pop(url, None)
        return [one for one, effect in self._recent.items() if effect.visit.target == url]

    def effect(self, url: str, fobi: Obi | None) -> Effect | None:
        """This run's effect on the URL with the document ``fobi``; None if it was not visited yet."""
        effect = self._recent.get(url)
        if effect is not None or fobi is None or fobi.visit is None or fobi.visit.tist != self._run:
            return effect
        entry = fobi.history.entry_at(self._run)
        version = fobi.version_at(self._run) if fobi.visit.checked == self._run else None
        place = (entry[0], url) if entry is not None else None
        hops = self._hops_from(fobi) if version is not None else 0
        record = ObiChange("fobi", fobi.id, visit=fobi.visit, due=fobi.due)
        return Effect(record, False, version, place, hops)

    def _hops_from(self, fobi: Obi) -> int:
        """The number of redirects from a URL to its contents at its last visit."""
        hops, step = 0, fobi.visit
        while step is not None and step.target and hops <= self._max_redirects:
            hops += 1
            further = self._catalogue.obis("fobi", [step.target]).get(step.target)
            step = further.visit if further is not None else None
        return hops
