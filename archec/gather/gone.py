"""Gone: the files whose loss a run's visits confirm, kept until its end, when it is known how many a host would lose.

Where too many of a host's files are gone at once it is rather the host that has changed, and their losses are held
back, like those of an archive (design, section 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from archec.archive.commit import CommitItem, Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.errors import StorageFailed
from archec.gather.losses import is_held_back
from archec.gather.visits import loss_of
from archec.ids import host_of

_PERIOD = 30 * 86400
"""Seconds for which a visit that found a file gone speaks against its host."""
_BATCH = 500


class GoneFiles:
    """The list, in the scratch space of a run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gone"
        self._hosts: Counter[str] = Counter()
        try:
            self._file = self._path.open("w+", encoding="utf-8")
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error.strerror}") from error

    def add(self, url: str) -> None:
        """A visit has confirmed that this file is lost."""
        self._hosts[host_of(url)] += 1
        self._file.write(f"{url}\n")

    def close(self) -> None:
        """Closes the file, which goes with the scratch space."""
        self._file.close()

    def conclude(
        self, archive: Archive, committer: Commits, report: Report, *, when: int, accepted: Collection[str]
    ) -> None:
        """Commits the losses of hosts that do not lose too much, or whose losses are ``accepted`` (``all``: any), and
        reports the others. ``when``: the time of the visits, by the clock."""
        for host, count in sorted(self._hosts.items()):
            held, gone = archive.catalogue.gone_files(host, when - _PERIOD)
            if is_held_back(archive.config, gone, held) and not {host, "all"} & set(accepted):
                report.held_back[host] = count
        urls = self._listed(lambda host: host not in report.held_back)
        while batch := list(islice(urls, _BATCH)):
            for fobi in archive.catalogue.obis("fobi", batch).values():
                loss = loss_of(archive.config, fobi)
                if loss is not None:
                    committer.add(CommitItem(loss))
                    report.visited(loss)
        committer.commit()

    def _listed(self, wanted: Callable[[str], bool]) -> Iterator[str]:
        self._file.seek(0)
        for line in self._file:
            url = line.rstrip("\n")
            if wanted(host_of(url)):
                yield url
