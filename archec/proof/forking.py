"""Forks: an archive continues after an older copy of it was restored. Its journals declare that, with a reason."""

from __future__ import annotations

from contextlib import ExitStack

from archec import __version__
from archec.archive.commit import Committer
from archec.archive.journal_records import records_in
from archec.archive.opening import Archive, LastRun, follow_until, last_run, rebuild, scratch_folder
from archec.archive.report import Report
from archec.archive.runs import close_interrupted_run, end_run, read_clock
from archec.catalogue.engines import open_catalogue
from archec.catalogue.journal_lines import ChainLink, Fork, RunStart, encode
from archec.catalogue.model import Position
from archec.config import Config
from archec.errors import ArchecError, UsageError
from archec.progress import Meter
from archec.proof.journal_tree import chain
from archec.proof.seal_file import Seal
from archec.store.journal import NO_BATCH, JournalWriter, tidy
from archec.store.layout import Layout, open_store
from archec.store.lock import RunLock
from archec.store.writer import Writer
from archec.tist import stamp


def declare_fork(config: Config, reason: str, seal: Seal | None, meter: Meter) -> Fork:
    """Declares in a run of its own that the archive continues from an older copy. Returns the declaration.

    The loss ends with the last batch that the catalogue has followed, or with the one that was sealed. The catalogue is
    rebuilt from the journals. Raises :class:`UsageError` if that batch exists, so that nothing is lost,
    :class:`archec.errors.CorruptArchive` if the journals are not one valid chain.
    """
    layout = open_store(config)
    with ExitStack() as stack:
        stack.enter_context(RunLock(layout, "fork"))
        tidy(layout)
        catalogue = stack.enter_context(open_catalogue(config.database, base=config.base, create=True))
        position = catalogue.position()
        lost = ChainLink(position.run, position.batch, position.head) if seal is None else ChainLink(*seal[3:6])
        meter.phase("reading journals", None)
        kept = _kept(layout, lost, meter)
        last = last_run(layout)
        if last is not None and not last.journal.finished:
            _close(config, layout, last)
            last = last_run(layout)
        run = stamp(max(lost.run, last.journal.tist if last is not None else 0))
        fork, head = Fork(run, kept, lost, reason), NO_BATCH
        for _, batch in chain(layout):
            head = batch.sha256
        with JournalWriter(layout, run, head=head) as journal:
            options = {"reason": reason}
            start = RunStart(run, kind="fork", options=options, software=__version__, clock=read_clock())
            # Declared before the catalogue is emptied, because only the catalogue knows the lost batch.
            journal.append([encode(start), encode(fork)], run)
            try:
                rebuild(layout, catalogue, meter=meter)
            except ArchecError as error:
                rest = "the loss is declared, and 'archec rebuild' completes the fork"
                error.hint = f"{error.hint}; {rest}" if error.hint else rest
                raise
            with Writer(layout) as writer:
                report = Report(run, 0, "none", "", state="done", message=reason)
                end_run(catalogue, Committer(writer, journal, catalogue), report)
        return fork


def _kept(layout: Layout, lost: ChainLink, meter: Meter) -> ChainLink:
    """The last batch before the lost ones."""
    kept = ChainLink(0, 0, NO_BATCH)
    if not lost.run:
        raise UsageError("the catalogue has followed no journal: there is no evidence of a loss", hint=_GIVE)
    for number, (journal, batch) in enumerate(chain(layout)):
        meter.at(number, f"run {journal.tist}")
        here = ChainLink(journal.tist, batch.n, batch.sha256)
        if here.sha256 == lost.sha256:
            raise UsageError(f"batch {lost.batch} of run {lost.run} exists: nothing is lost", hint=_GIVE)
        if any(fork.lost == lost for fork in records_in(batch, journal.path, Fork)):
            raise UsageError(
                f"run {journal.tist} has already declared that", hint="'archec rebuild' rebuilds the catalogue"
            )
        if (here.run, here.batch) < (lost.run, lost.batch):
            kept = here
    return kept


_GIVE = (
    "'archec rebuild' completes a fork that was interrupted; if the catalogue does not know what is lost, give a newer "
    "seal with --seal"
)


def _close(config: Config, layout: Layout, last: LastRun) -> None:
    """Closes the journal of a run that was in progress when the copy was made, with a catalogue in scratch space."""
    with (
        scratch_folder(config) as folder,
        open_catalogue("sqlite:///fold.sqlite", base=folder, create=True) as scratch,
    ):
        follow_until(layout, scratch, Position(last.journal.tist, 1 << 60))
        close_interrupted_run(Archive(config, layout, scratch), last)
