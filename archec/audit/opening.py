"""Opening an archive that may be damaged: what other commands refuse is a finding here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from archec.archive.follow import CATCH_UP, catch_up, is_behind
from archec.audit.findings import Finding
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Position
from archec.catalogue.open import is_read_only, open_catalogue
from archec.catalogue.url import redact
from archec.config import Config
from archec.errors import CatalogueError, CatalogueGone, CorruptArchive, CorruptJournal, LockHeld, StorageFailed
from archec.store.journalfile import journals
from archec.store.layout import RUNS, Layout, open_store
from archec.store.lock import RunLock

__all__ = ["Audited", "follow", "opened_for_audit"]


@dataclass(slots=True)
class Audited:
    """An open archive, however it is. ``catalogue`` is None where it cannot be opened.

    ``findings`` are what came up in opening it, ``position`` is how far the catalogue has followed the
    journals, ``locked`` whether this process holds the run lock.
    """

    config: Config
    layout: Layout
    catalogue: Catalogue | None
    findings: list[Finding] = field(default_factory=list)
    position: Position = field(default_factory=Position)
    locked: bool = False

    def followed(self, run: int, batch: int) -> bool:
        """Whether the catalogue has followed the journals as far as this batch."""
        return self.catalogue is not None and (run, batch) <= (self.position.run, self.position.batch)


@contextmanager
def opened_for_audit(config: Config, *, following: bool, lock: str = "") -> Iterator[Audited]:
    """Opens the archive; where ``lock`` is given, it is held meanwhile and says so.

    ``following``: lets the catalogue catch up with the journals, if no run is at work; makes it where it
    is not there. Else, and where the catalogue cannot be written, nothing is changed. A catalogue or a
    journal in the way of that is a finding. Raises :class:`CorruptArchive` where ``layout.json`` is damaged,
    :class:`LockHeld`, :class:`CatalogueGone` where a database server does not answer, and :class:`CatalogueError`
    where a catalogue on a read-only file system cannot be opened.
    """
    layout = open_store(config)
    with ExitStack() as stack:
        if lock:
            stack.enter_context(RunLock(layout, lock))
        archive = Audited(config, layout, None, locked=bool(lock))
        try:
            following = following and not is_read_only(config.database, base=config.base)
            archive.catalogue = open_catalogue(
                config.database, base=config.base, create=following, read_only=not following
            )
        except CatalogueGone:
            raise
        except CatalogueError as error:
            if is_read_only(config.database, base=config.base):
                raise  # it says so; the archive need not be damaged
            archive.findings.append(Finding("catalogue-unreadable", redact(config.database), _told(error)))
        if archive.catalogue is not None:
            stack.callback(archive.catalogue.close)
            _look(archive, archive.catalogue, following=following)
        yield archive


def follow(archive: Audited) -> None:
    """Lets the catalogue catch up with journals that have been repaired; what is in the way is ignored here."""
    if archive.catalogue is not None:
        with suppress(CorruptArchive, CatalogueError):
            catch_up(archive.layout, archive.catalogue)
        archive.position = archive.catalogue.position()


def _look(archive: Audited, catalogue: Catalogue, *, following: bool) -> None:
    try:
        archive.position = catalogue.position()
        if following and is_behind(archive.layout, catalogue, trusting=False):
            _catch_up(archive, catalogue)
            archive.position = catalogue.position()
    except CorruptJournal as error:
        archive.findings.append(Finding("journal-damaged", _journal_in(archive.layout, error), _told(error)))
    except CorruptArchive as error:
        archive.findings.append(_ahead(archive, error))
    except CatalogueGone:
        raise
    except CatalogueError as error:
        archive.findings.append(Finding("catalogue-unreadable", catalogue.url, _told(error)))
        archive.catalogue = None


def _catch_up(archive: Audited, catalogue: Catalogue) -> None:
    if archive.locked:
        applied = catch_up(archive.layout, catalogue)
    else:
        try:
            with RunLock(archive.layout, CATCH_UP):
                applied = catch_up(archive.layout, catalogue)
        except (LockHeld, StorageFailed):
            return
    if applied:
        message = f"lacked {applied} {'batch' if applied == 1 else 'batches'} of the journals"
        archive.findings.append(Finding("catalogue-behind", catalogue.url, message, mended="it has caught up"))


def _ahead(archive: Audited, error: CorruptArchive) -> Finding:
    """The catalogue knows of more than its last run's journal holds: that is damaged, or not there."""
    run = archive.position.run
    for journal in journals(archive.layout):
        if journal.tist == run:
            return Finding("journal-damaged", f"{RUNS}/{journal.path.name}", _told(error))
    return Finding("journal-missing", f"{RUNS}/{run}.jsonl.gz", _told(error))


def _journal_in(layout: Layout, error: CorruptJournal) -> str:
    """The relative path of the journal that an error is about."""
    for journal in journals(layout):
        if error.message.startswith(f"{journal.path}:") or error.message.startswith(f"{journal.path},"):
            return f"{RUNS}/{journal.path.name}"
    return RUNS


def _told(error: CorruptArchive | CatalogueError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
