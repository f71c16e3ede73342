"""The file phase of a run as a whole: two passes over the files that are due, then the decision on losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

from archec.archive.report import NOT_ASKED
from archec.gather.bodies import Received
from archec.gather.file_phase import FilePhase
from archec.gather.holding_back import GoneFiles, undecided
from archec.gather.host_waits import HostTable
from archec.gather.options import Environment
from archec.gather.plan import Feeder, due_files, make_plan
from archec.store.writer import sweep_parts
from archec.text.pool import TextPool
from archec.web.pool import FetchPool
from archec.web.task import Hop


def visit_files(of: Environment) -> str:
    """Visits the files that are due; those of given-up hosts are retried once. Decides on losses at the end, even if no
    file was due, because losses held back earlier may be accepted.

    Returns ``budget`` or ``network-down`` if that stopped it, else an empty string. Raises an ArchecError if the run
    must stop.
    """
    of.meter.phase("planning visits", None)
    with of.report.timed("files"), closing(GoneFiles(of.spool.folder)) as gone:
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
    with Received(archive.work, run) as received:
        yield FilePhase(of, hosts, received, on_gone), hosts


def _pass(of: Environment, phase: FilePhase, texts: TextPool, *, last_pass: bool) -> tuple[bool, list[str]]:
    config, sink = of.archive.config, ("archec.store.writer:body_sink", (of.archive.layout, of.report.run))
    with FetchPool(config.fetch, config.agent, sink, max_bytes=of.options.budget.bytes) as pool:
        try:
            return phase.fetch(pool, texts, Feeder(of.spool, phase.queue), last_pass=last_pass)
        except BaseException as error:
            phase.abandon(pool, error)
            raise
