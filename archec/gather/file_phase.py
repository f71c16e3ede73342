"""The file phase of a run: visits due files in two passes, stores what is new or has changed, records every outcome."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from archec.archive.budget import BudgetUse
from archec.archive.commit import CommitItem
from archec.archive.file_loss import is_lost
from archec.archive.report import NOT_ASKED
from archec.catalogue.journal_lines import HostNoted
from archec.catalogue.model import HostState, Obi, Version
from archec.errors import ArchecError
from archec.gather.due import Feeder, due_files, make_plan, task_for, unnamed_files
from archec.gather.gone_files import GoneFiles, undecided
from archec.gather.host_waits import HostTable, is_silent
from archec.gather.options import Environment
from archec.gather.received_bodies import Bodies, ReceivedHops, declared
from archec.gather.spool import Spool
from archec.gather.suspects import MANY, SHARED, SharedBodies, is_login_page, tags_in, tags_of
from archec.gather.visits import Active, Effect, UnderWay, VisitLog, VisitResult, contradicts, doubtful, visit_for
from archec.paging import batched
from archec.store.writer import sweep_parts
from archec.text.checksum import TextPool
from archec.units import human_size
from archec.web.outcome import FetchTask, Hop
from archec.web.pool import FetchPool

_WINDOW = 1024
"""Minimum number of files queued for the fetchers, so that they never wait for a commit."""
_CHUNK, _LAST_CHUNK = 1000, 250
"""Number of visits that are committed together; fewer when the fetchers are not fully used, as towards the end, so that
little is left to commit after the last file."""
_CHUNK_SECONDS = 3.0
_QUEUE = 64
"""Minimum of the maximum number of files of one host at the fetchers."""
_TEXTS = 256
_LAST_MINUTE = 60.0
"""Seconds for files in flight to finish when bytes or time are exhausted."""
_PATIENCE = 5.0
"""Seconds for text extraction from received files when a run is stopped."""
_MOST_AGAIN = 200_000
"""Maximum number of files of given-up hosts that are retried in the same run; the rest in the next one."""
_MOST_SILENT = 20_000
"""Maximum number of files that wait for the network; the others wait for the next run."""
_WAIT = 0.05
_OUT_OF_STEP = "the connection was out of step"


def visit_files(of: Environment) -> str:
    """Visits the files that are due; those of given-up hosts are retried once. Decides on losses at the end, even if no
    file was due, because losses held back earlier may be accepted.

    Returns ``budget`` or ``network-down`` if that stopped it, else an empty string. Raises an ArchecError if the run
    must stop.
    """
    of.meter.phase("planning visits", None)
    with of.report.timed("files"), GoneFiles(of.spool.folder) as gone:
        for url in undecided(of.archive, of.report):
            gone.add(url)
        state = _visit(of, gone.add)
        gone.conclude(of.archive, of.committer, of.report, when=of.at.when, accepted=of.options.accept)
        return state


def _visit(of: Environment, on_gone: Callable[[str], None]) -> str:
    archive, report = of.archive, of.report
    with _file_phase(of, on_gone) as (phase, hosts):

        def may_be_asked(url: str) -> bool:
            """Whether the host of a file may be asked in this run; if not, the file is deferred and counted."""
            if hosts.is_bound(url):
                report.put_off(url, NOT_ASKED)
                return False
            return True

        files = of.options.budget.files
        due = due_files(archive.catalogue, archive.config.fetch, of.at.when, report.run)
        if not make_plan(of.spool, (fobi for fobi in due if may_be_asked(fobi.id)), files + 1 if files else 0):
            return ""
        spent, again = False, list[str]()
        with TextPool(archive.config.text) as texts:
            for last_pass in (False, True):
                if last_pass:
                    of.spool.replan([url for url in again if may_be_asked(url)])
                spent, again = _pass(of, phase, texts, last_pass=last_pass)
                if spent or hosts.is_cut_off or not again:
                    break
        sweep_parts(archive.layout, {report.run})  # of fetching processes that died
        return "network-down" if hosts.is_cut_off else "budget" if spent else ""


def take_up(of: Environment, hops: Iterable[Hop]) -> None:
    """Completes the visits whose hops a killed run left. The next run that visits files decides on losses."""
    with _file_phase(of, lambda url: None) as (phase, _), TextPool(of.archive.config.text) as texts:
        phase.take_up(hops, texts)


@contextmanager
def _file_phase(of: Environment, on_gone: Callable[[str], None]) -> Iterator[tuple[FilePhase, HostTable]]:
    archive, run = of.archive, of.report.run
    hosts = HostTable(archive.config.fetch, archive.catalogue.hosts(), run, time.time())
    with ReceivedHops(archive.work, run) as received:
        yield FilePhase(of, hosts, received, on_gone), hosts


def _pass(of: Environment, phase: FilePhase, texts: TextPool, *, last_pass: bool) -> tuple[bool, list[str]]:
    config, sink = of.archive.config, ("archec.store.writer:body_sink", (of.archive.layout, of.report.run))
    with FetchPool(config.fetch, config.agent, sink, max_bytes=of.options.budget.bytes) as pool:
        try:
            return phase.fetch(pool, texts, of.spool, last_pass=last_pass)
        except BaseException as error:
            phase.abandon(pool, error)
            raise


@dataclass(slots=True)
class _Pass:
    """The environment of one pass. Leftovers of a killed run are adopted without fetchers."""

    texts: TextPool
    pool: FetchPool | None = None
    feeder: Feeder | None = None
    second_chance: bool = False
    requests: int = 0
    received: int = 0


class FilePhase:
    """One object for all passes over the plan.

    ``on_gone`` receives the ids of files whose loss a visit confirms; they are
    decided at the end.
    """

    def __init__(
        self, of: Environment, hosts: HostTable, received: ReceivedHops, on_gone: Callable[[str], None]
    ) -> None:
        archive, report = of.archive, of.report
        self._config, self._catalogue = archive.config, archive.catalogue
        self._committer, self._report, self._meter = of.committer, report, of.meter
        self._hosts, self._received, self._on_gone = hosts, received, on_gone
        self._run, self._at, self._budget = report.run, of.at, of.options.budget
        self._use = BudgetUse(self._budget)
        self._visits = VisitLog(archive.catalogue, report.run, self._config.fetch.max_redirects)
        self._bodies = Bodies(archive.layout, report.run, resumed=report.resumed)
        self._shared = SharedBodies(archive.catalogue)
        self._under_way = UnderWay(self._config.fetch.max_redirects)
        self._done = 0
        self._deferred: list[str] = []
        self._forgotten = False
        self._pass: _Pass

    def fetch(self, pool: FetchPool, texts: TextPool, spool: Spool, *, last_pass: bool) -> tuple[bool, list[str]]:
        """Visits the whole plan, or as much as the budget and the network allow.

        Returns whether the budget stopped it, and the URLs of given-up hosts that a later pass may retry
        (none in the ``last_pass``, and none with a budget: they are recorded).
        """
        use, under_way = self._use, self._under_way
        feeder = Feeder(spool, max(_QUEUE, 2 * self._config.fetch.per_host))
        self._pass = _Pass(texts, pool, feeder, not last_pass and not self._budget)
        pool.know(self._hosts.known())
        use.begin()
        window = max(_WINDOW, 8 * self._config.fetch.concurrency)
        total = use.files + feeder.left
        self._meter.phase("fetching files" if not last_pass else "fetching again", total or None)
        spent = False
        while not self._hosts.is_hopeless:
            spent = spent or use.spent
            left = feeder.left
            if not spent and not texts.pending > _TEXTS:
                room = window - under_way.count("fetched") - under_way.count("redirects")
                self._feed(pool, feeder, room)
                spent = use.spent
            if use.exhausted and under_way.count("fetched"):
                self._wind_up(pool)
            fetching = under_way.count("fetched")
            if not fetching and not under_way.count("text"):
                if spent or not feeder.left:
                    break
                if feeder.left == left:  # all hosts have their share, of URLs that wait for silent ones
                    for active in list(under_way.in_state("silent")):
                        self._put_off(active)
                continue
            self._committer.pace(_CHUNK if fetching >= window else _LAST_CHUNK, _CHUNK_SECONDS)
            self._collect(pool.collect(_WAIT if fetching else 0.0))
            self._collect_texts(0.0 if under_way.count("fetched") else _WAIT)
            self._committer.tick()
            if self._received.is_large:
                self._committer.commit()
                self._received.restart(hop for active in under_way if (hop := active.hop) is not None)
            self._meter.at(self._done, f"{human_size(use.bytes)}, {fetching} in flight", total)
        hopeless = self._hosts.is_hopeless
        for active in list(under_way if hopeless else under_way.in_state("silent")):
            self._put_off(active)
        if hopeless and feeder.left:
            self._report.deferred[NOT_ASKED] += feeder.left
        self._committer.commit()
        return spent and (bool(feeder.left) or self._forgotten), self._deferred

    def take_up(self, hops: Iterable[Hop], texts: TextPool) -> None:
        """Completes the visits whose hops a killed run has left, if that needs no further requests."""
        self._pass = _Pass(texts)
        for batch in batched(hops, _CHUNK):
            fobis = self._catalogue.obis("fobi", [hop.url for hop in batch])
            for hop in batch:
                fobi = fobis.get(hop.url)
                if hop.url in self._under_way or self._visits.effect(hop.url, fobi) is not None:
                    continue
                left = self._bodies.left(hop)
                if left is not None:
                    known = fobi is not None
                    self._under_way.begin(fobi or Obi(hop.url, "fobi"), known=known, planned=known)
                    self._take(left)
        while self._under_way.count("text"):
            self._collect_texts(_WAIT)
        self._committer.commit()

    def _collect(self, hops: list[Hop]) -> None:
        """Processes the results of the fetchers, and counts their requests."""
        now, pool = self._pass, self._pass.pool
        if pool is not None:
            self._report.requests += pool.requests - now.requests
            self._report.fetched_bytes += pool.received - now.received
            self._use.bytes += pool.received - now.received
            if pool.spent:  # heads count, too
                self._use.bytes = max(self._use.bytes, self._budget.bytes)
            now.requests, now.received = pool.requests, pool.received
        if hops:
            self._received.add(hop for hop in hops if not hop.deferred and not is_silent(hop))
        for hop in hops:  # all of them first: a Retry-After of a host also applies to files not requested yet
            self._heard(self._hosts.heard(hop))
        self._shared.expect(hops)
        for hop in hops:
            if hop.kind == "doubtful":
                self._doubt(hop)
            else:
                self._take(hop)
        if hops and self._under_way.count("silent"):
            for active in list(self._under_way.in_state("silent")):
                if self._hosts.has_network(active.fobi.id):
                    self._finish(active, _failure(active.answer))

    def _collect_texts(self, timeout: float) -> None:
        for done in self._pass.texts.collect(timeout):
            active = self._under_way.get(done.key, "text")
            if active is not None and active.result is not None and active.result.version is not None:
                version = replace(active.result.version, text=done.md5)
                self._finish(active, replace(active.result, version=version))

    def _heard(self, learnt: HostState | None) -> None:
        if learnt is not None:
            self._committer.add(CommitItem(HostNoted(learnt)))

    def _wind_up(self, pool: FetchPool) -> None:
        """Finishes files in flight and drops queued ones, which stay due.

        A URL that redirects to a file whose text is still being extracted is finished with it.
        """
        self._collect(pool.stop(drain=True, within=_LAST_MINUTE))
        self._forgotten = bool(self._under_way.forget("fetched")) or self._forgotten

    def abandon(self, pool: FetchPool, error: BaseException) -> None:
        """Stores what has been received, and cancels what is in flight, for a run that is stopped."""
        if isinstance(error, KeyboardInterrupt) and pool.pending:
            self._collect(pool.collect(0.0))
        for hop in pool.stop():
            self._discard(hop)
        deadline = time.monotonic() + _PATIENCE
        while self._under_way.count("text") and time.monotonic() < deadline:
            self._collect_texts(_WAIT)
        for active in self._under_way.in_state("text"):
            self._discard(active.answer)
        self._committer.commit()

    # -- feeding ----------------------------------------------------------------------------------

    def _feed(self, pool: FetchPool, feeder: Feeder, room: int) -> None:
        urls = list(feeder.take(self._use.most(room))) if room > 0 and feeder.left else []
        if not urls:
            return
        fobis = self._catalogue.obis("fobi", urls)
        unnamed = unnamed_files(self._catalogue, [url for url, fobi in fobis.items() if fobi.visit is not None])
        tasks: list[FetchTask] = []
        for url in urls:
            fobi = fobis.get(url, Obi(url, "fobi"))
            if self._under_way.plan(url):
                self._use.files += 1
                if self._under_way.get(url, "silent") is not None:
                    feeder.done(url)
                continue
            if self._visits.effect(url, fobi) is not None:
                self._done += 1
                feeder.done(url)
                continue
            self._use.files += 1
            self._under_way.begin(fobi, known=True, planned=True, unnamed=url in unnamed)
            tasks.append(task_for(fobi, self._config, self._at))
        if tasks:
            pool.submit(tasks)

    # -- hops -------------------------------------------------------------------------------------

    def _take(self, hop: Hop) -> None:
        active = self._under_way.get(hop.url, "fetched")
        if active is None:
            self._discard(hop)
        elif hop.kind == "redirect":
            self._redirect(active, hop)
        elif hop.kind == "body":
            self._body(active, hop)
        elif hop.kind == "not-modified":
            self._not_modified(active, hop)
        elif hop.deferred and self._hosts.is_bound(hop.url):
            active.hop = hop
            self._put_off(active)
        elif is_silent(hop) and not self._hosts.has_network(hop.url):
            self._silent(active, hop)
        else:
            self._finish(active, _failure(hop))

    def _redirect(self, active: Active, hop: Hop) -> None:
        target = hop.location
        ended = self._under_way.redirect(active, hop)
        if ended is not None:
            self._finish(active, ended)
            return
        if target in self._under_way:
            return
        known = self._catalogue.obis("fobi", [target]).get(target)
        effect = self._visits.effect(target, known)
        if effect is not None:
            visit = effect.visit
            found = Hop(target, "failed", status=visit.status, message=visit.message, deferred=effect.deferred)
            self._finish(active, self._reached(active, target, effect, found))
        elif self._hosts.is_bound(target):
            self._put_off(active)
        else:
            fobi = known or Obi(target, "fobi")
            self._under_way.begin(fobi, known=known is not None, planned=False, waiting=active)
            self._submit(task_for(fobi, self._config, self._at))

    def _submit(self, task: FetchTask) -> None:
        if self._pass.pool is not None and not self._use.exhausted:
            self._pass.pool.submit([task])

    def _not_modified(self, active: Active, hop: Hop) -> None:
        fobi = active.fobi
        version, entry = fobi.version_at(self._run), fobi.history.entry_at(self._run)
        if version is not None and fobi.visit is not None and contradicts(hop, fobi.visit, version):
            self._under_way.requeue(active)
            self._submit(FetchTask(hop.url))
            return
        place = (entry[0], hop.url) if entry is not None else None
        cosmetic = fobi.visit is not None and fobi.visit.cosmetic
        seen = VisitResult(hop, version=version, unchanged=True, cosmetic=cosmetic, place=place, tags=tags_of(hop))
        self._finish(active, seen)

    def _body(self, active: Active, hop: Hop) -> None:
        fobi = active.fobi
        drop_validators = False
        held = self._bodies.orphan(hop)
        if held is not None and held.sha256 != hop.sha256:
            self._discard(hop)
            hop, drop_validators = held, True
        kind, tags, suspect = "", tags_of(hop), ""
        version = fobi.versions.get(hop.sha256) if fobi.history.at(self._run) == hop.sha256 else None
        if version is None:
            kind = self._bodies.kind(hop)
            if page := self._bodies.page(hop, kind):
                suspect = "login page" if is_login_page(page) else ""
                tags = tags or tags_in(page)
        if tags and self._config.fetch.robots_tags == "obey":
            self._finish(active, VisitResult(hop, outcome="robots", message=f"its robots tags say {tags}", tags=tags))
            return
        found = version or Version(hop.sha256, hop.md5, hop.size, None, kind)
        result = VisitResult(hop, version=found, drop_validators=drop_validators, suspect=suspect, tags=tags)
        if version is None and self._pass.texts.wants(kind, hop.size):
            self._under_way.extract(active, result)
            path, declared_kind = self._bodies.path(hop), declared(kind, hop.content_type)
            self._pass.texts.extract(hop.url, path, declared_kind, hop.header("content-encoding"))
            return
        self._finish(active, result)

    def _silent(self, active: Active, hop: Hop) -> None:
        """Sets a file aside until a host answers: neither its own nor any other has done so recently."""
        self._under_way.silence(active, hop)
        if active.planned and self._pass.feeder is not None:
            self._pass.feeder.done(active.fobi.id)
        if self._under_way.count("silent") > _MOST_SILENT:
            self._put_off(next(iter(self._under_way.in_state("silent"))))

    def _doubt(self, hop: Hop) -> None:
        """An earlier answer for this URL may have belonged to another request: its result does not count.

        Journalled results are dropped, and the file is due immediately; so are URLs that redirected to it.
        """
        if hop.url in self._under_way:
            active = self._under_way.get(hop.url, "text", "redirects")
            if active is not None:
                self._discard(active.answer)
                self._under_way.requeue(active)
                self._submit(FetchTask(hop.url))
            return
        self._committer.commit()
        doubted = [hop.url]
        for url in doubted:
            doubted += [one for one in self._visits.forget(url) if one not in doubted]
        for fobi in self._catalogue.obis("fobi", doubted).values():
            if fobi.visit is not None and fobi.visit.tist == self._run:
                self._committer.add(CommitItem(doubtful(fobi, hop.message or _OUT_OF_STEP)))
        self._committer.commit()

    # -- results ----------------------------------------------------------------------------------

    def _finish(self, active: Active, seen: VisitResult) -> None:
        """Ends a visit, and those of all URLs that redirect here, however long the chains are."""
        ending = deque([(active, seen)])
        while ending:
            ending.extend(self._end(*ending.popleft()))

    def _end(self, active: Active, seen: VisitResult) -> Iterator[tuple[Active, VisitResult]]:
        """Ends one visit; yields the URLs that waited for it, with their results."""
        fobi, hop = active.fobi, seen.hop
        waiting = self._under_way.end(active)
        if hop.deferred and self._pass.second_chance and len(self._deferred) < _MOST_AGAIN:
            if active.planned:
                self._deferred.append(fobi.id)
                self._finished(active)
            for one in waiting:
                again = replace(one.answer, deferred=True)
                yield one, VisitResult(again, outcome=seen.outcome or "unreachable", target=fobi.id)
            return
        if seen.version is not None and seen.version.sha256 != fobi.history.at(self._run) and not seen.suspect:
            seen = replace(seen, suspect=self._shared_with(fobi.id, seen.version.sha256, seen.target))
        effect = visit_for(self._config, fobi, seen, self._at, unnamed=active.unnamed)
        if seen.hops or hop.deferred:
            effect = replace(effect, hops=seen.hops, deferred=hop.deferred)
        item = self._bodies.item(effect, seen)
        if item.placement is not None:
            self._report.stored_bytes += hop.size
        elif not effect.keep:
            self._discard(hop)
        if hop.deferred:
            self._heard(self._hosts.gave_up(hop))
        if active.known or effect.version is not None:
            self._committer.add(item)
            self._report.visited(effect.record)
            if fobi.history.held and is_lost(self._config, effect.visit):
                self._on_gone(fobi.id)
        if active.known or effect.visit.outcome != "too-many-redirects":  # which depends on where its chain begins
            self._visits.remember(fobi.id, effect)
        if active.planned:
            self._done += 1
            if hop.deferred:
                self._report.put_off(fobi.id, effect.visit.outcome)
            self._finished(active)
        for one in waiting:
            yield one, self._reached(one, fobi.id, effect, replace(hop, message=seen.message or hop.message))

    def _finished(self, active: Active) -> None:
        if self._pass.feeder is not None and active.state != "silent":
            self._pass.feeder.done(active.fobi.id)

    def _put_off(self, active: Active) -> None:
        """Ends the visits of a file and of those that redirect to it without a result: they stay due."""
        outcome = active.answer.outcome
        why = str(outcome) if outcome is not None else NOT_ASKED
        ending = [active]
        for one in ending:
            ending += self._under_way.end(one)
            if one.planned:
                self._done += 1
                self._report.put_off(one.fobi.id, why)
                self._finished(one)

    def _reached(self, active: Active, url: str, effect: Effect, hop: Hop) -> VisitResult:
        """The result of a URL that redirects to ``url``, given the effect and the answer of the visit to ``url``."""
        seen = self._under_way.reached(active.answer, url, effect, hop)
        if seen.version is None:
            return seen
        return self._bodies.own(active.answer, seen.version) or seen

    def _shared_with(self, url: str, sha256: str, target: str) -> str:
        """Why a body is suspect if many URLs of its host share it, else empty. Marks the other URLs as well."""
        others = self._shared.others(url, sha256, target)
        if len(others) == MANY - 1:
            self._committer.commit()
            for record in self._shared.marks(others, sha256, self._run):
                self._committer.add(CommitItem(record))
                self._report.visited(record)
        return SHARED if len(others) >= MANY - 1 else ""

    def _discard(self, hop: Hop) -> None:
        if hop.temp:
            try:
                self._committer.discard(hop.temp)
            except ArchecError as error:
                self._report.message = error.message


def _failure(hop: Hop) -> VisitResult:
    return VisitResult(hop, outcome=str(hop.outcome) if hop.outcome is not None else "unreachable", tags=tags_of(hop))
