"""Opening an archive that may be damaged: what is an error for other commands is a finding here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from archec.archive.opening import catch_up, is_behind
from archec.audit.disk import known_tists
from archec.audit.findings import Finding
from archec.catalogue.engines import is_read_only, open_catalogue
from archec.catalogue.interface import Catalogue, redact
from archec.catalogue.model import Position
from archec.config import Config
from archec.errors import BrokenChain, CatalogueError, CatalogueGone, CorruptArchive, CorruptJournal
from archec.store.layout import RUNS, Layout, journal_of, open_store
from archec.store.lock import RunLock
from archec.units import counted


@dataclass(slots=True)
class Audited:
    """An open archive in any state. ``catalogue`` is None if it cannot be opened, for the reason ``unopened``.

    ``findings`` are from opening it, ``position`` is how far the catalogue has followed the journals, ``locked``
    whether this process holds the run lock.
    """

    config: Config
    layout: Layout
    catalogue: Catalogue | None
    unopened: CatalogueError | None = None
    findings: list[Finding] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    locked: bool = False

    def followed(self, run: int, batch: int) -> bool:
        """Whether the catalogue has followed the journals as far as this batch."""
        return self.catalogue is not None and (run, batch) <= (self.position.run, self.position.batch)

    def catch_up(self) -> None:
        """Lets the catalogue follow repaired journals; obstacles are reported elsewhere."""
        if self.catalogue is not None:
            with suppress(CorruptArchive, CatalogueError):
                catch_up(self.layout, self.catalogue)
            self.position = self.catalogue.position()


@contextmanager
def opened_for_audit(config: Config, *, writable: bool = False, lock: str = "") -> Iterator[Audited]:
    """Opens the archive; an invalid catalogue or journal is a finding.

    ``writable``: the catalogue may be written. ``lock``: the run lock is held under this name, a missing catalogue is
    created, and the catalogue catches up with the journals. If it cannot be written, it is opened read-only.
    Raises :class:`CorruptArchive` if ``layout.json`` is damaged, :class:`archec.errors.LockHeld`,
    :class:`CatalogueGone` if a database server does not answer, and :class:`CatalogueError` if a catalogue on a
    read-only file system cannot be opened.
    """
    layout = open_store(config)
    with ExitStack() as stack:
        if lock:
            stack.enter_context(RunLock(layout, lock))
        archive = Audited(config, layout, None, locked=bool(lock))
        read_only = is_read_only(config.database, base=config.base)
        writable = (writable or bool(lock)) and not read_only
        try:
            archive.catalogue = open_catalogue(
                config.database, base=config.base, create=writable and bool(lock), read_only=not writable
            )
        except CatalogueGone:
            raise
        except CatalogueError as error:
            if read_only:
                raise  # the error explains it; the archive need not be damaged
            archive.unopened = error
            archive.findings.append(Finding("catalogue-unreadable", redact(config.database), str(error)))
        if archive.catalogue is not None:
            stack.callback(archive.catalogue.close)
            _follow(archive, archive.catalogue, following=writable and bool(lock))
        yield archive


def _follow(archive: Audited, catalogue: Catalogue, *, following: bool) -> None:
    """Determines the position of the catalogue, and lets it catch up."""
    try:
        archive.position = catalogue.position()
        known_tists(catalogue)  # damage to what every audit needs is found here
        if following and is_behind(archive.layout, catalogue, trusting=False):
            if applied := catch_up(archive.layout, catalogue):
                message = f"lacked {counted(applied, 'batch', 'batches')} of the journals"
                archive.findings.append(Finding("catalogue-behind", catalogue.url, message, fixed="it has caught up"))
            archive.position = catalogue.position()
    except CorruptArchive as error:
        archive.findings.append(_about_journal(archive, error))
    except CatalogueGone:
        raise
    except CatalogueError as error:
        archive.unopened = error
        archive.findings.append(Finding("catalogue-unreadable", catalogue.url, str(error)))
        archive.catalogue = None


def _about_journal(archive: Audited, error: CorruptArchive) -> Finding:
    """The finding for what kept the catalogue from following the journals."""
    code = "journal-chain" if isinstance(error, BrokenChain) else "journal-damaged"
    if isinstance(error, CorruptJournal):
        return Finding(code, f"{RUNS}/{error.path.name}" if error.path is not None else RUNS, str(error))
    # The catalogue contains more than the journal of its last run, which is damaged or missing.
    run = archive.position.run
    journal = journal_of(archive.layout, run)
    if journal is None:
        return Finding("journal-missing", f"{RUNS}/{run}.jsonl.gz", str(error))
    return Finding(code, f"{RUNS}/{journal.path.name}", str(error))
