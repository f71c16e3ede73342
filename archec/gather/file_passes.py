"""The file phase of a run as a whole: two passes over the files that are due, then the decision on losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from archec.archive.commit import Commits
from archec.archive.opening import Archive
from archec.archive.report import NOT_ASKED, Report
from archec.gather.bodies import Received
from archec.gather.file_phase import FilePhase
from archec.gather.holding_back import GoneFiles, undecided
from archec.gather.host_waits import HostTable
from archec.gather.options import Options
from archec.gather.plan import Feeder, due_files, make_plan
from archec.gather.spool import Spool
from archec.gather.visits import RunTime
from archec.progress import Meter
from archec.store.writer import sweep_parts
from archec.text.pool import TextPool
from archec.web.pool import FetchPool
from archec.web.task import Hop


@dataclass(frozen=True, slots=True)
class FilePasses:
    """The environment of the file phase of a run, which fills ``report``."""

    archive: Archive
    committer: Commits
    spool: Spool
    report: Report
    meter: Meter
    options: Options
    at: RunTime

    def visit(self) -> str:
        """Visits the files that are due; those of given-up hosts are retried once. Decides on losses at the end, even
        if no file was due, because losses held back earlier may be accepted.

        Returns ``budget`` or ``network-down`` if that stopped it, else an empty string. Raises an ArchecError if the
        run must stop.
        """
        self.meter.phase("planning visits", None)
        with self.report.timed("files"), closing(GoneFiles(self.spool.folder)) as gone:
            for url in undecided(self.archive, self.report):
                gone.add(url)
            state = self._visit(gone.add)
            gone.conclude(
                self.archive, self.committer, self.report, when=self.at.when, accepted=self.options.accept
            )
            return state

    def _visit(self, on_gone: Callable[[str], None]) -> str:
        with self._file_phase(on_gone) as (phase, hosts):
            files = self.options.budget.files
            due = due_files(self.archive.catalogue, self.archive.config.fetch, self.at.when, self.report.run)
            free = (fobi for fobi in due if self._may_be_asked(fobi.id, hosts))
            if not make_plan(self.spool, free, files + 1 if files else 0):
                return ""
            spent, again = False, list[str]()
            with TextPool(self.archive.config.text) as texts:
                for last_pass in (False, True):
                    if last_pass:
                        self.spool.replan([url for url in again if self._may_be_asked(url, hosts)])
                    spent, again = self._pass(phase, texts, last_pass=last_pass)
                    if spent or hosts.is_cut_off or not again:
                        break
            sweep_parts(self.archive.layout, {self.report.run})  # of fetching processes that died
            return "network-down" if hosts.is_cut_off else "budget" if spent else ""

    def take_up(self, hops: Iterable[Hop]) -> None:
        """Completes the visits whose hops a killed run left. The next run that visits files decides on losses."""
        with self._file_phase(lambda url: None) as (phase, _), TextPool(self.archive.config.text) as texts:
            phase.take_up(hops, texts)

    @contextmanager
    def _file_phase(self, on_gone: Callable[[str], None]) -> Iterator[tuple[FilePhase, HostTable]]:
        archive, run = self.archive, self.report.run
        hosts = HostTable(archive.config.fetch, archive.catalogue.hosts(), run, time.time())
        with Received(archive.work, run) as received:
            yield FilePhase(
                archive, self.committer, self.report, self.meter, hosts, received,
                at=self.at, budget=self.options.budget, on_gone=on_gone,
            ), hosts  # fmt: skip

    def _may_be_asked(self, url: str, hosts: HostTable) -> bool:
        """Whether the host of a file may be asked in this run; if not, the file is deferred and counted."""
        if hosts.is_bound(url):
            self.report.put_off(url, NOT_ASKED)
            return False
        return True

    def _pass(self, phase: FilePhase, texts: TextPool, *, last_pass: bool) -> tuple[bool, list[str]]:
        config, sink = self.archive.config, ("archec.store.writer:body_sink", (self.archive.layout, self.report.run))
        most = self.options.budget.bytes
        with FetchPool(config.fetch, config.agent, sink, max_bytes=most) as pool:
            try:
                return phase.fetch(pool, texts, Feeder(self.spool, phase.queue), last_pass=last_pass)
            except BaseException as error:
                phase.abandon(pool, error)
                raise
