"""Refold: folds the journals again in scratch space and compares the result with the catalogue.

Everything in the catalogue is compared: its documents, and its additional lists (losses, returns, due files, and the
mentions of texts and files).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import orjson
from xxhash import xxh3_128_digest

from archec.archive.opening import follow_until, scratch_folder, scratch_space
from archec.audit.cross_check import KEY, PartitionedDiff
from archec.audit.findings import Finding, Reporter
from archec.audit.opening import Audited
from archec.catalogue.dump import dump
from archec.catalogue.engines import open_catalogue
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import KINDS
from archec.errors import CatalogueError, StorageFailed, StorageFull
from archec.paging import batched
from archec.progress import Meter
from archec.tist import MAX_TIST

_PAGE = 500
_MOST_TEXT = 300


def compare_whole(archive: Audited, catalogue: Catalogue, meter: Meter, report: Reporter) -> bool:
    """Reports how a catalogue differs from the result of folding the journals as far as it has followed them. Returns
    False if there was no scratch space for that.

    Raises :class:`archec.errors.CatalogueError` if the catalogue cannot be read, :class:`CorruptArchive` if the
    journals cannot.
    """
    try:
        with (
            scratch_folder(archive.config) as folder,
            _scratch_errors(folder),
            open_catalogue("sqlite:///fold.sqlite", base=folder, create=True) as fresh,
            PartitionedDiff(lambda: nullcontext(folder), (KEY, KEY)) as diff,
        ):
            meter.phase("folding journals", None)
            follow_until(archive.layout, fresh, archive.position, meter)
            _compare(catalogue, fresh, diff, meter, report)
        return True
    except (OSError, StorageFailed, StorageFull) as error:
        message = f"the catalogue was not compared whole: the journals cannot be folded there: {error}"
        report(Finding("no-scratch-space", str(scratch_space(archive.config)), message))
        return False


@contextmanager
def _scratch_errors(folder: Path) -> Iterator[None]:
    """Converts errors of the scratch catalogue, which say nothing about the archive, to :class:`StorageFailed`."""
    try:
        yield
    except CatalogueError as error:
        if not error.message.startswith(f"{folder}/"):
            raise
        raise StorageFailed(error.message, hint=error.hint) from error


def _compare(catalogue: Catalogue, fresh: Catalogue, diff: PartitionedDiff, meter: Meter, report: Reporter) -> None:
    meter.phase("comparing the catalogue", None)
    for side, one in enumerate((catalogue, fresh)):
        for some in batched(_statements(one), _PAGE):
            diff.add(side, b"".join(map(_key, some)))
    (theirs, ours), more = diff.unmatched()
    for wanted, one, says in (
        (theirs, catalogue, "the catalogue says, and the journals do not"),
        (ours, fresh, "the journals say, and the catalogue does not"),
    ):
        named = (text for text in _statements(one) if _key(text) in wanted) if wanted else iter(())
        for text in named:
            brief = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
            report(Finding("catalogue-differs", catalogue.url, f"{says}: {brief}"))
    if more:
        report(Finding("not-compared", ".", f"{more} more differences like these are not reported"))


def _key(text: str) -> bytes:
    return xxh3_128_digest(text.encode("utf-8", "surrogatepass"))


def _statements(catalogue: Catalogue) -> Iterator[str]:
    """All statements of a catalogue, each as a separate text."""
    yield from dump(catalogue, everything=True)
    for name, values in _lists(catalogue):
        for value in values:
            yield f"{name} {orjson.dumps(value, default=str).decode()}"


def _lists(catalogue: Catalogue) -> Iterator[tuple[str, Iterator[object]]]:
    """The lists that a catalogue keeps next to its documents."""
    for kind in KINDS:
        for name, moments in (
            ("incidence", catalogue.incidences), ("lost", catalogue.lost), ("returned", catalogue.returned),
        ):  # fmt: skip
            yield f"{name} of a {kind}", (tuple(moment) for moment in moments(kind))
        noted = ((run.tist, *moment) for run in catalogue.runs() for moment in catalogue.incidences(kind, run=run.tist))
        yield f"{kind} that a run noted", noted
    yield "due", (tuple(fobi) for fobi in catalogue.due(MAX_TIST))
    yield "newest entry", (tuple(state) for state in catalogue.scan())
    yield "named file", (tuple(one) for one in catalogue.references())
    yield "contents", (tuple(one) for one in catalogue.checksums())
    yield "state of a file", _file_states(catalogue)


def _file_states(catalogue: Catalogue) -> Iterator[object]:
    for page in batched((obi.id for obi in catalogue.all("fobi")), _PAGE):
        for url, state in catalogue.file_states(page).items():
            yield (url, *state)


