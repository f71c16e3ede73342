"""The options and the budget of a run, the options that a resumed run takes over, and what its phases work with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from archec.archive.budget import NO_LIMIT, Budget
from archec.archive.commit import Commits
from archec.archive.opening import Archive
from archec.archive.report import Report
from archec.catalogue.model import Run
from archec.errors import UsageError
from archec.gather.spool import Spool
from archec.progress import Meter

_AHEAD = 60


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run; see ``archec gather --help``. ``template_files`` is the setting of that name. ``refusals``
    is the checksum of the settings by which archec refuses files (:func:`archec.gather.due.refusals`). ``repeated`` is
    a file for the handles that occur more than once in the data set."""

    file: Path | None = None
    as_of: int | None = None
    fetch: bool = True
    complete: bool = False
    salvage: bool = False
    resume: bool = False
    reread: bool = False
    wait: bool = False
    trust_clock: bool = False
    accept: frozenset[str] = frozenset()
    template_files: tuple[str, ...] = ()
    refusals: str = ""
    budget: Budget = NO_LIMIT
    repeated: Path | None = None

    def as_value(self) -> dict[str, Any]:
        """The options that a resumed run takes over, as JSON values."""
        return {
            "as_of": self.as_of,
            "fetch": self.fetch,
            "complete": self.complete,
            "salvage": self.salvage,
            "accept": sorted(self.accept),
            "template_files": list(self.template_files),
            "refusals": self.refusals,
        }

    def carrying_on(self, kept: Mapping[str, Any]) -> Options:
        """These options for resuming a run that was begun with ``kept``, in the form of :meth:`as_value`.

        Raises :class:`UsageError` if the run fetches files but these options forbid it.
        """
        fetch = bool(kept.get("fetch", True))
        if fetch and not self.fetch:
            raise UsageError("the run to resume fetches files", hint="resume it without --no-fetch")
        return replace(
            self,
            as_of=kept.get("as_of"),
            fetch=fetch,
            complete=bool(kept.get("complete")),
            salvage=bool(kept.get("salvage")),
            accept=self.accept | frozenset(kept.get("accept", ())),
            template_files=tuple(kept.get("template_files", ())),
        )


def options_of(run: Run) -> dict[str, Any]:
    """The options with which a gathering began, in the form of :meth:`Options.as_value`; empty for a run of another
    kind."""
    found: dict[str, Any] = json.loads(run.options) if run.kind == "gather" else {}
    return found


class RunTime(NamedTuple):
    """The time of a run's visits: its tist, and the clock if the tist is ahead of it (else 0)."""

    run: int
    clock: int = 0

    @property
    def when(self) -> int:
        """Unix seconds by the clock."""
        return self.clock or self.run


def run_time(run: int, now: float) -> RunTime:
    """The time of a run; a tist a few seconds ahead, as after runs in quick succession, is as good as the clock."""
    return RunTime(run, int(now) if run - now > _AHEAD else 0)


@dataclass(frozen=True, slots=True)
class Environment:
    """What the phases of a run work with. They fill ``report``."""

    archive: Archive
    committer: Commits
    spool: Spool
    report: Report
    meter: Meter
    options: Options
    at: RunTime
