"""The file phase of a run: visit what is due, keep what is news, explain every outcome."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice

from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Fobi, FobiVersion
from archec.config import Config
from archec.errors import ArchecError, BadName
from archec.gather.bodies import Bodies, declared
from archec.gather.budget import Budget, Purse
from archec.gather.chains import Chains
from archec.gather.commit import Committer
from archec.gather.known import Known
from archec.gather.plan import Feeder
from archec.gather.report import Report
from archec.gather.underway import Active, UnderWay
from archec.gather.visits import Effect, Seen, visit_for
from archec.ids import host_of, normalise_url
from archec.progress import Meter
from archec.store.layout import Layout
from archec.text.pool import TextPool
from archec.units import human_size
from archec.web.pool import FetchPool
from archec.web.task import FetchTask, Hop

__all__ = ["FobiPhase"]

_WINDOW = 1024
"""So many files are handed to the fetchers at least, so that they never wait for a commit."""
_LOT, _LAST_LOT = 1000, 250
"""So many visits are committed together; fewer where the fetchers have less to do than they could, as towards the end:
then little is left to do when the last file has come."""
_LOT_SECONDS = 3.0
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


class FobiPhase:
    """See the module's docstring. One object for one pass over a plan."""

    def __init__(
        self,
        config: Config,
        layout: Layout,
        catalogue: Catalogue,
        committer: Committer,
        report: Report,
        meter: Meter,
        *,
        run: int,
        resumed: bool,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._layout, self._catalogue = config, layout, catalogue
        self._committer, self._report, self._meter = committer, report, meter
        self._run, self._budget = run, budget
        self._purse = Purse(budget, clock)
        self._known = Known(catalogue, run, config.fetch.max_redirects)
        self._bodies = Bodies(layout, run, resumed=resumed)
        self._chains = Chains(config.fetch.max_redirects)
        self._under_way = UnderWay()
        self._done = 0
        self._deferred: list[str] = []
        self._second_chance = True
        self._forgotten = False

    def begin(self, pool: FetchPool) -> None:
        """Hands over files that are due as far as the archive knew before this run, for the fetchers to get on with.

        For a run without a budget (one with a budget takes new files first): they are in the plan that ``fetch``
        is given, too.
        """
        urls: list[str] = []
        hosts: Counter[str] = Counter()
        for due in islice(self._catalogue.due(self._run), 2 * self._window):
            host = host_of(due.id)
            if hosts[host] < self.queue and len(urls) < self._window:
                hosts[host] += 1
                urls.append(due.id)
        fobis = self._catalogue.fobis(urls)
        for url in urls:
            fobi = fobis.get(url, Fobi(url))
            if self._known.effect(url, fobi) is None:
                self._under_way.fetching[url] = Active(fobi, True, False)
        pool.submit([self._task(active.fobi) for active in self._under_way.fetching.values()])

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
        purse, under_way = self._purse, self._under_way
        self._second_chance = not last_pass and not self._budget
        purse.begin()
        window = self._window
        total = purse.files + feeder.left
        self._meter.phase("fetching files" if not last_pass else "fetching again", total or None)
        spent = False
        if under_way.fetching:  # the first of the plan are on their way
            self._feed(pool, feeder, window, feeder.left)
        while True:
            spent = spent or purse.spent
            if not spent and not texts.pending > _TEXTS:
                self._feed(pool, feeder, under_way.room(window), feeder.left)
                spent = purse.spent
            if purse.exhausted and under_way.fetching:
                self._wind_up(pool, texts, feeder)
            if not under_way.fetching and not under_way.reading:
                if spent or not feeder.left:
                    break
                continue
            self._committer.pace(_LOT if len(under_way.fetching) >= window else _LAST_LOT, _LOT_SECONDS)
            for hop in pool.collect(_WAIT if under_way.fetching else 0.0):
                self._take(hop, pool, texts, feeder)
            for done in texts.collect(0.0 if under_way.fetching else _WAIT):
                active, hop, kind = under_way.reading.pop(done.key)
                version = FobiVersion(hop.md5, hop.size, done.md5, kind)
                self._finish(active, Seen(hop, version=version), feeder)
            self._committer.tick()
            self._meter.at(self._done, f"{human_size(purse.bytes)}, {len(under_way.fetching)} under way", total)
        self._committer.commit()
        return spent and (bool(feeder.left) or self._forgotten), self._deferred

    def _wind_up(self, pool: FetchPool, texts: TextPool, feeder: Feeder) -> None:
        """Finishes what is under way and forgets what is only queued: it stays due.

        Whoever redirects to a file whose text is still being read is finished with it.
        """
        for hop in pool.stop(drain=True, within=_LAST_MINUTE):
            self._take(hop, pool, texts, feeder)
        self._forgotten = self._forgotten or bool(self._under_way.fetching)
        self._under_way.fetching.clear()

    def abandon(self) -> None:
        """Drops what is on its way and keeps what is done: a run that is stopped."""
        for _, hop, _ in self._under_way.reading.values():
            self._discard(hop)
        self._committer.commit()

    # -- feeding ----------------------------------------------------------------------------------

    def _feed(self, pool: FetchPool, feeder: Feeder, room: int, left: int) -> None:
        if room <= 0 or not left:
            return
        urls = list(feeder.take(self._purse.most(room)))
        if not urls:
            return
        fobis = self._catalogue.fobis(urls)
        tasks: list[FetchTask] = []
        for url in urls:
            fobi = fobis.get(url, Fobi(url))
            if self._under_way.plan_too(url):
                self._purse.files += 1
                continue
            if self._known.effect(url, fobi) is not None:
                self._done += 1
                feeder.done(url)
                continue
            self._purse.files += 1
            self._under_way.fetching[url] = Active(fobi, True, True)
            tasks.append(self._task(fobi))
        if tasks:
            pool.submit(tasks)

    def _task(self, fobi: Fobi) -> FetchTask:
        visit = fobi.visit
        if visit is None or not fobi.history.held:
            return FetchTask(fobi.id)
        return FetchTask(fobi.id, visit.etag, visit.modified)

    # -- hops -------------------------------------------------------------------------------------

    def _take(self, hop: Hop, pool: FetchPool, texts: TextPool, feeder: Feeder) -> None:
        if hop.temp:
            hop = hop._replace(temp=hop.temp.removeprefix(f"{self._layout.root}/"))
        active = self._under_way.fetching.pop(hop.url, None)
        if active is None:
            self._discard(hop)
            return
        self._report.requests += 1
        self._report.fetched_bytes += hop.size
        self._purse.bytes += hop.size
        if hop.kind == "redirect":
            self._redirect(active, hop, pool, feeder)
        elif hop.kind == "body":
            self._body(active, hop, texts, feeder)
        elif hop.kind == "not-modified":
            state = active.fobi.history.at(self._run)
            version = active.fobi.versions.get(state) if state is not None else None
            entry = active.fobi.history.entry_at(self._run)
            place = (entry[0], hop.url) if entry is not None else None
            self._finish(active, Seen(hop, version=version, unchanged=True, place=place), feeder)
        else:
            outcome = str(hop.outcome) if hop.outcome is not None else "unreachable"
            self._finish(active, Seen(hop, outcome=outcome), feeder)

    def _redirect(self, active: Active, hop: Hop, pool: FetchPool, feeder: Feeder) -> None:
        try:
            target = normalise_url(hop.location)
        except BadName as error:
            self._finish(active, Seen(hop, outcome="bad-url", message=f"redirects to: {error.message}"), feeder)
            return
        ended = self._chains.follow(hop, target, own=active.known)
        if ended:
            self._finish(active, Seen(hop, outcome=ended, target=target, message=_ENDED[ended]), feeder)
            return
        self._under_way.redirecting[hop.url] = active
        if target in self._under_way:
            return
        known = self._catalogue.fobis([target]).get(target)
        effect = self._known.effect(target, known)
        if effect is not None:
            status = effect.record.visit.status
            found = Hop(target, "failed", status=status, deferred=effect.deferred)
            for waiting, seen in self._release(target, effect, found):
                self._finish(waiting, seen, feeder)
            return
        fobi = known or Fobi(target)
        self._under_way.fetching[target] = Active(fobi, known is not None, False)
        if not self._purse.exhausted:
            pool.submit([self._task(fobi)])

    def _body(self, active: Active, hop: Hop, texts: TextPool, feeder: Feeder) -> None:
        fobi = active.fobi
        state = fobi.history.at(self._run)
        drop_validators = False
        held = self._bodies.orphan(hop)
        if held is not None and held.md5 != hop.md5:
            self._discard(hop)
            hop, drop_validators = held, True
        version = fobi.versions.get(state) if state == hop.md5 and state is not None else None
        if version is not None:
            self._finish(active, Seen(hop, version=version), feeder)
            return
        kind = self._bodies.kind(hop)
        if not drop_validators and texts.wants(kind, hop.size):
            self._under_way.reading[hop.url] = (active, hop, kind)
            path = os.path.join(self._layout.root, hop.temp)
            texts.submit(hop.url, path, declared(kind, hop.content_type), hop.header("content-encoding"))
            return
        version = FobiVersion(hop.md5, hop.size, None, kind)
        self._finish(active, Seen(hop, version=version, drop_validators=drop_validators), feeder)

    # -- results ----------------------------------------------------------------------------------

    def _finish(self, active: Active, seen: Seen, feeder: Feeder) -> None:
        """Ends a visit, and those of all who redirect here, however many follow one another."""
        ending = deque([(active, seen)])
        while ending:
            ending.extend(self._end(*ending.popleft(), feeder))

    def _end(self, active: Active, seen: Seen, feeder: Feeder) -> Iterator[tuple[Active, Seen]]:
        """Ends one visit; gives those who waited for it and what they have come to."""
        fobi, hop = active.fobi, seen.hop
        if hop.deferred and self._second_chance and len(self._deferred) < _MOST_AGAIN:
            if active.planned:
                self._deferred.append(fobi.id)
                feeder.done(fobi.id)
            for waiter in self._chains.release(fobi.id):
                waiting = self._under_way.redirecting.pop(waiter.url)
                again = waiter.hop._replace(deferred=True)
                yield waiting, Seen(again, outcome=seen.outcome or "unreachable", target=fobi.id)
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
        self._known.remember(fobi.id, effect)
        if active.planned:
            self._done += 1
            if hop.deferred:
                self._report.put_off(fobi.id)
            feeder.done(fobi.id)
        yield from self._release(fobi.id, effect, hop._replace(message=seen.message or hop.message))

    def _release(self, url: str, effect: Effect, hop: Hop) -> Iterator[tuple[Active, Seen]]:
        """Those who wait for a URL, and what they have come to now that its visit is over."""
        for waiter in self._chains.release(url):
            waiting = self._under_way.redirecting.pop(waiter.url)
            if effect.version is None:
                failed = waiter.hop._replace(status=hop.status or waiter.hop.status, deferred=hop.deferred)
                seen = Seen(failed, outcome=effect.outcome, target=url, message=hop.message)
            elif effect.hops >= self._config.fetch.max_redirects:
                seen = Seen(waiter.hop, outcome="too-many-redirects", target=url, message=_ENDED["too-many-redirects"])
            else:
                seen = self._bodies.own(waiter.hop, effect.version) or Seen(
                    waiter.hop,
                    version=effect.version,
                    unchanged=effect.outcome == "not-modified",
                    target=url,
                    place=effect.place,
                    hops=effect.hops + 1,
                )
            yield waiting, seen

    def _discard(self, hop: Hop) -> None:
        if hop.temp:
            try:
                self._committer.discard(hop.temp)
            except ArchecError as error:
                self._report.message = error.message
