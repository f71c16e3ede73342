"""The file phase of a run: visit what is due, keep what is news, explain every outcome."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator

from archec.archive.commit import Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.catalogue.model import Obi, Version
from archec.errors import ArchecError, BadName
from archec.gather.bodies import Bodies, declared
from archec.gather.options import Budget, BudgetUse
from archec.gather.plan import Feeder
from archec.gather.underway import Active, UnderWay, VisitLog
from archec.gather.visits import Effect, VisitResult, visit_for
from archec.ids import normalise_url
from archec.progress import Meter
from archec.text.pool import TextPool
from archec.units import human_size
from archec.web.pool import FetchPool
from archec.web.task import FetchTask, Hop

_WINDOW = 1024
"""So many files are handed to the fetchers at least, so that they never wait for a commit."""
_CHUNK, _LAST_CHUNK = 1000, 250
"""So many visits are committed together; fewer where the fetchers have less to do than they could, as towards the end:
then little is left to do when the last file has come."""
_CHUNK_SECONDS = 3.0
_QUEUE = 64
"""Files of one host that are handed to the fetchers ahead of time."""
_TEXTS = 256
_LAST_MINUTE = 60.0
"""Seconds that files under way have when bytes or time are used up."""
_MOST_AGAIN = 200_000
"""So many files of hosts that were given up are tried again in the same run; the rest in the next."""
_WAIT = 0.05
_ENDED = {
    "redirect-loop": "its redirects go round in a circle",
    "too-many-redirects": "more redirects than fetch.max_redirects",
}


class FilePhase:
    """See the module's docstring. One object for one pass over a plan."""

    def __init__(
        self,
        archive: Archive,
        committer: Commits,
        report: Report,
        meter: Meter,
        *,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._layout, self._catalogue = archive.config, archive.layout, archive.catalogue
        self._committer, self._report, self._meter = committer, report, meter
        self._run, self._budget = report.run, budget
        self._use = BudgetUse(budget, clock)
        self._visits = VisitLog(archive.catalogue, report.run, self._config.fetch.max_redirects)
        self._bodies = Bodies(archive.layout, report.run, resumed=report.resumed)
        self._under_way = UnderWay(self._config.fetch.max_redirects)
        self._done = 0
        self._deferred: list[str] = []
        self._second_chance = True
        self._forgotten = False

    @property
    def queue(self) -> int:
        """How many files of one host may be with the fetchers."""
        return max(_QUEUE, 2 * self._config.fetch.per_host)

    @property
    def _window(self) -> int:
        return max(_WINDOW, 8 * self._config.fetch.concurrency)

    def fetch(self, pool: FetchPool, texts: TextPool, feeder: Feeder, *, last_pass: bool) -> tuple[bool, list[str]]:
        """Visits the whole plan, or as much as the budget allows.

        Gives whether the budget stopped it, and the URLs whose hosts were given up and that a later
        pass may try again (none in the ``last_pass``, and none where there is a budget: it records them).
        """
        use, under_way = self._use, self._under_way
        self._second_chance = not last_pass and not self._budget
        use.begin()
        window = self._window
        total = use.files + feeder.left
        self._meter.phase("fetching files" if not last_pass else "fetching again", total or None)
        spent = False
        while True:
            spent = spent or use.spent
            if not spent and not texts.pending > _TEXTS:
                room = window - under_way.count("fetched") - under_way.count("redirects")
                self._feed(pool, feeder, room, feeder.left)
                spent = use.spent
            if use.exhausted and under_way.count("fetched"):
                self._wind_up(pool, texts, feeder)
            fetching = under_way.count("fetched")
            if not fetching and not under_way.count("text"):
                if spent or not feeder.left:
                    break
                continue
            self._committer.pace(_CHUNK if fetching >= window else _LAST_CHUNK, _CHUNK_SECONDS)
            for hop in pool.collect(_WAIT if fetching else 0.0):
                self._take(hop, pool, texts, feeder)
            for done in texts.collect(0.0 if under_way.count("fetched") else _WAIT):
                active = under_way.get(done.key, "text")
                if active is not None and active.hop is not None:
                    hop = active.hop
                    version = Version(hop.sha256, hop.md5, hop.size, done.md5, active.type)
                    self._finish(active, VisitResult(hop, version=version), feeder)
            self._committer.tick()
            self._meter.at(self._done, f"{human_size(use.bytes)}, {fetching} under way", total)
        self._committer.commit()
        return spent and (bool(feeder.left) or self._forgotten), self._deferred

    def _wind_up(self, pool: FetchPool, texts: TextPool, feeder: Feeder) -> None:
        """Finishes what is under way and forgets what is only queued: it stays due.

        Whoever redirects to a file whose text is still being read is finished with it.
        """
        for hop in pool.stop(drain=True, within=_LAST_MINUTE):
            self._take(hop, pool, texts, feeder)
        self._forgotten = bool(self._under_way.forget("fetched")) or self._forgotten

    def abandon(self) -> None:
        """Drops what is on its way and keeps what is done: a run that is stopped."""
        for active in self._under_way.in_state("text"):
            if active.hop is not None:
                self._discard(active.hop)
        self._committer.commit()

    # -- feeding ----------------------------------------------------------------------------------

    def _feed(self, pool: FetchPool, feeder: Feeder, room: int, left: int) -> None:
        if room <= 0 or not left:
            return
        urls = list(feeder.take(self._use.most(room)))
        if not urls:
            return
        fobis = self._catalogue.obis("fobi", urls)
        tasks: list[FetchTask] = []
        for url in urls:
            fobi = fobis.get(url, Obi(url, "fobi"))
            if self._under_way.plan(url):
                self._use.files += 1
                continue
            if self._visits.effect(url, fobi) is not None:
                self._done += 1
                feeder.done(url)
                continue
            self._use.files += 1
            self._under_way.begin(fobi, known=True, planned=True)
            tasks.append(self._task(fobi))
        if tasks:
            pool.submit(tasks)

    def _task(self, fobi: Obi) -> FetchTask:
        visit = fobi.visit
        if visit is None or not fobi.history.held:
            return FetchTask(fobi.id)
        return FetchTask(fobi.id, visit.etag, visit.modified)

    # -- hops -------------------------------------------------------------------------------------

    def _take(self, hop: Hop, pool: FetchPool, texts: TextPool, feeder: Feeder) -> None:
        if hop.temp:
            hop = hop._replace(temp=hop.temp.removeprefix(f"{self._layout.root}/"))
        active = self._under_way.get(hop.url, "fetched")
        if active is None:
            self._discard(hop)
            return
        self._report.requests += 1
        self._report.fetched_bytes += hop.size
        self._use.bytes += hop.size
        if hop.kind == "redirect":
            self._redirect(active, hop, pool, feeder)
        elif hop.kind == "body":
            self._body(active, hop, texts, feeder)
        elif hop.kind == "not-modified":
            state = active.fobi.history.at(self._run)
            version = active.fobi.versions.get(state) if state is not None else None
            entry = active.fobi.history.entry_at(self._run)
            place = (entry[0], hop.url) if entry is not None else None
            self._finish(active, VisitResult(hop, version=version, unchanged=True, place=place), feeder)
        else:
            outcome = str(hop.outcome) if hop.outcome is not None else "unreachable"
            self._finish(active, VisitResult(hop, outcome=outcome), feeder)

    def _redirect(self, active: Active, hop: Hop, pool: FetchPool, feeder: Feeder) -> None:
        try:
            target = normalise_url(hop.location)
        except BadName as error:
            self._finish(active, VisitResult(hop, outcome="bad-url", message=f"redirects to: {error.message}"), feeder)
            return
        ended = self._under_way.redirect(active, hop, target)
        if ended:
            self._finish(active, VisitResult(hop, outcome=ended, target=target, message=_ENDED[ended]), feeder)
            return
        if target in self._under_way:
            return
        known = self._catalogue.obis("fobi", [target]).get(target)
        effect = self._visits.effect(target, known)
        if effect is not None:
            status = effect.status
            found = Hop(target, "failed", status=status, deferred=effect.deferred)
            self._finish(active, self._reached(active, target, effect, found), feeder)
            return
        fobi = known or Obi(target, "fobi")
        self._under_way.begin(fobi, known=known is not None, planned=False, waiting=active)
        if not self._use.exhausted:
            pool.submit([self._task(fobi)])

    def _body(self, active: Active, hop: Hop, texts: TextPool, feeder: Feeder) -> None:
        fobi = active.fobi
        state = fobi.history.at(self._run)
        drop_validators = False
        held = self._bodies.orphan(hop)
        if held is not None and held.sha256 != hop.sha256:
            self._discard(hop)
            hop, drop_validators = held, True
        version = fobi.versions.get(hop.sha256) if state == hop.sha256 else None
        if version is not None:
            self._finish(active, VisitResult(hop, version=version), feeder)
            return
        kind = self._bodies.kind(hop)
        if not drop_validators and texts.wants(kind, hop.size):
            self._under_way.extract(active, hop, kind)
            path = os.path.join(self._layout.root, hop.temp)
            texts.submit(hop.url, path, declared(kind, hop.content_type), hop.header("content-encoding"))
            return
        version = Version(hop.sha256, hop.md5, hop.size, None, kind)
        self._finish(active, VisitResult(hop, version=version, drop_validators=drop_validators), feeder)

    # -- results ----------------------------------------------------------------------------------

    def _finish(self, active: Active, seen: VisitResult, feeder: Feeder) -> None:
        """Ends a visit, and those of all who redirect here, however many follow one another."""
        ending = deque([(active, seen)])
        while ending:
            ending.extend(self._end(*ending.popleft(), feeder))

    def _end(self, active: Active, seen: VisitResult, feeder: Feeder) -> Iterator[tuple[Active, VisitResult]]:
        """Ends one visit; gives those who waited for it and what they have come to."""
        fobi, hop = active.fobi, seen.hop
        waiting = self._under_way.end(active)
        if hop.deferred and self._second_chance and len(self._deferred) < _MOST_AGAIN:
            if active.planned:
                self._deferred.append(fobi.id)
                feeder.done(fobi.id)
            for one in waiting:
                again = _hop(one)._replace(deferred=True)
                yield one, VisitResult(again, outcome=seen.outcome or "unreachable", target=fobi.id)
            return
        effect = visit_for(self._config, fobi, seen, self._run)
        if seen.hops or hop.deferred:
            effect = effect._replace(hops=seen.hops, deferred=hop.deferred)
        item = self._bodies.item(effect, seen)
        if item.placement is not None:
            self._report.stored_bytes += hop.size
        elif not effect.keep:
            self._discard(hop)
        if active.known or effect.version is not None:
            self._committer.add(item)
            self._report.visited(effect.record)
        self._visits.remember(fobi.id, effect)
        if active.planned:
            self._done += 1
            if hop.deferred:
                self._report.put_off(fobi.id)
            feeder.done(fobi.id)
        for one in waiting:
            yield one, self._reached(one, fobi.id, effect, hop._replace(message=seen.message or hop.message))

    def _reached(self, active: Active, url: str, effect: Effect, hop: Hop) -> VisitResult:
        """What a URL has come to that redirects to ``url``, whose visit had this effect by this answer."""
        own = _hop(active)
        if effect.version is None:
            failed = own._replace(status=hop.status or own.status, deferred=hop.deferred)
            return VisitResult(failed, outcome=effect.outcome, target=url, message=hop.message)
        if effect.hops >= self._config.fetch.max_redirects:
            return VisitResult(own, outcome="too-many-redirects", target=url, message=_ENDED["too-many-redirects"])
        return self._bodies.own(own, effect.version) or VisitResult(
            own,
            version=effect.version,
            unchanged=effect.outcome == "not-modified",
            target=url,
            place=effect.place,
            hops=effect.hops + 1,
        )

    def _discard(self, hop: Hop) -> None:
        if hop.temp:
            try:
                self._committer.discard(hop.temp)
            except ArchecError as error:
                self._report.message = error.message


def _hop(active: Active) -> Hop:
    """The answer by which a URL redirects."""
    return active.hop or Hop(active.fobi.id, "failed")
