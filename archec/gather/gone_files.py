"""Files whose losses are confirmed by a run's visits. They are collected until its end, when it is known how many files
each host would lose. If too many are gone at once, the host itself has probably changed, and they are held back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from archec.archive.commit import CommitItem, Commits
from archec.archive.file_loss import is_lost, loss_of
from archec.archive.held_back import files_of, held_back_record, is_held_back, journalled
from archec.archive.journal_records import records
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.archive.runs import newest_first
from archec.catalogue.journal_lines import ObiChange
from archec.closing import Closing
from archec.errors import storage_errors
from archec.gather.options import options_of
from archec.ids import host_of
from archec.paging import batched
from archec.store.layout import journals

_PERIOD = 30 * 86400
"""Seconds for which a visit that found a file gone counts against its host."""
_BATCH = 500


def undecided(archive: Archive, report: Report) -> Iterator[str]:
    """Yields files whose losses were confirmed by runs that stopped before deciding on them: this run, if it was
    resumed, and interrupted ones since the last uninterrupted run that visited files."""
    paths = {journal.tist: journal.path for journal in journals(archive.layout)}
    for run in newest_first(archive.catalogue, report.run + 1):
        stopped = report.resumed if run.tist == report.run else run.state == "interrupted"
        if not options_of(run).get("fetch"):
            continue
        if stopped and run.tist in paths:
            for record in records(paths[run.tist], ObiChange, obis="fobi", words=(b'"gone"',)):
                if record.visit is not None and is_lost(archive.config, record.visit):
                    yield record.id
        elif run.tist != report.run:
            return


class GoneFiles(Closing):
    """The confirmed losses, in the scratch space of a run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gone"
        self._hosts: Counter[str] = Counter()
        with storage_errors(self._path):
            self._file = self._path.open("w+", encoding="utf-8")

    def add(self, url: str) -> None:
        """Adds a file whose loss a visit has confirmed."""
        self._hosts[host_of(url)] += 1
        with storage_errors(self._path):
            self._file.write(f"{url}\n")

    def close(self) -> None:
        """Closes the file, which is removed with the scratch space."""
        with suppress(OSError):  # the disk is full, which add() or conclude() has reported
            self._file.close()

    def conclude(
        self, archive: Archive, committer: Commits, report: Report, *, when: int, accepted: Collection[str]
    ) -> None:
        """Commits the losses of hosts that do not lose too much, or whose losses are ``accepted`` (``all`` accepts
        any host), including losses held back by earlier runs. Reports and journals the others. ``when`` is the clock
        time of the visits."""
        for earlier in archive.catalogue.held_back():
            for host, url in files_of(archive.catalogue, earlier):
                if {host, "all"} & set(accepted):
                    self.add(url)
        for host, count in sorted(self._hosts.items()):
            held, gone = archive.catalogue.gone_files(host, when - _PERIOD)
            if is_held_back(archive.config, gone, held) and not {host, "all"} & set(accepted):
                report.held_back[host] = count
        for batch in batched(self._listed(lambda host: host not in report.held_back), _BATCH):
            for fobi in archive.catalogue.obis("fobi", batch).values():
                loss = loss_of(archive.config, fobi, report.run)
                if loss is not None:
                    committer.add(CommitItem(loss))
                    report.visited(loss)
            committer.commit()
        self._hold_back(archive, committer, report)
        committer.commit()

    def _hold_back(self, archive: Archive, committer: Commits, report: Report) -> None:
        """Journals the losses held back now. A file held back by an earlier run that is still gone stays held back; it
        moves to this run's record if this run holds back losses of its host."""
        config, catalogue = archive.config, archive.catalogue
        held_back = {(host_of(url), url) for url in self._listed(lambda host: host in report.held_back)}
        records = []
        for earlier in catalogue.held_back():
            if earlier.kind == "fobi" and earlier.groups:
                files = {url: host for host, url in files_of(catalogue, earlier)}
                fobis = catalogue.obis("fobi", files).values()
                gone = {(files[fobi.id], fobi.id) for fobi in fobis if loss_of(config, fobi, report.run) is not None}
                carried = {(host, url) for host, url in gone if host in report.held_back}
                held_back |= carried
                if earlier.run != report.run and (carried or len(gone) < len(files)):
                    records.append(held_back_record(earlier.run, gone - carried, "fobi"))
        if held_back:
            records.append(held_back_record(report.run, held_back, "fobi"))
            report.held_back.update((host, group.losses) for host, group in records[-1][0].groups.items())
        for record, lists in records:
            for line in journalled(catalogue, record, lists):
                committer.add(CommitItem(line))

    def _listed(self, wanted: Callable[[str], bool]) -> Iterator[str]:
        with storage_errors(self._path):
            self._file.seek(0)
        for line in self._file:
            url = line.rstrip("\n")
            if wanted(host_of(url)):
                yield url
