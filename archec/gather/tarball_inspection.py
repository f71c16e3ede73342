"""Inspecting a tarball without gathering it: damage, date, contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archec.config import Config
from archec.errors import BadName, DataSetError
from archec.gather.data_set_date import date_of
from archec.gather.dataset import printable
from archec.progress import Meter
from archec.redif.files import Blob, Directory, Other, Unread
from archec.redif.precedence import place
from archec.redif.problems import Problem
from archec.redif.scan import scan
from archec.redif.schema import type_of
from archec.redif.source import open_source
from archec.tist import iso


@dataclass(slots=True)
class Inspection:
    """The properties of a tarball. ``date`` is the tist that gathering would give it, 0 if it would be refused;
    ``dated_by`` is the reason. ``damage`` is None if it is whole."""

    source: str
    damage: Problem | None = None
    date: int = 0
    dated_by: str = ""
    archives: set[str] = field(default_factory=set)
    templates: Counter[str] = field(default_factory=Counter)
    files: int = 0
    unreadable: int = 0
    others: int = 0
    warnings: list[Problem] = field(default_factory=list)

    def as_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "whole": self.damage is None,
            "damage": self.damage.message if self.damage else "",
            "date": self.date or None,
            "date_time": iso(self.date) if self.date else None,
            "dated_by": self.dated_by,
            "archives": sorted(self.archives),
            "templates": {"total": sum(self.templates.values()), "by_type": dict(sorted(self.templates.items()))},
            "files": {"read": self.files, "unreadable": self.unreadable, "other": self.others},
            "warnings": [{"code": problem.code, "message": problem.message} for problem in self.warnings],
        }


def inspect(path: Path, config: Config, meter: Meter, *, on_other: Callable[[str], None]) -> Inspection:
    """Reads a complete tarball and writes nothing; ``on_other`` receives the path of each file that would be ignored.

    Raises DataSetError if ``path`` is not a tarball.
    """
    found = Inspection(printable(path.absolute()))
    if path.is_dir():
        raise DataSetError(f"{path}: is a directory, not a tarball", hint="'archec gather -f' reads it all the same")
    with open_source(path, max_file=config.max_template_file, patterns=config.template_files) as source:
        meter.phase(f"reading {path.name}", source.size or None)
        for item in source:
            if isinstance(item, Blob):
                found.archives.add(place(item.path).archive)
                found.templates.update([type_of(template.kind) for template in scan(item).templates])
                meter.at(source.position)
            elif isinstance(item, Directory):
                found.archives.add(place(item.path + "-").archive)
            elif isinstance(item, Unread):
                found.unreadable += 1
            elif isinstance(item, Other):
                found.archives.add(place(item.path).archive)
                found.others += 1
                on_other(item.path)
        found.files, found.damage = source.files, source.damage
        found.warnings += source.warnings
        found.archives.discard("")
    try:
        found.date, found.dated_by = date_of(path.name, newest=source.newest, whole=found.damage is None)
    except BadName as error:
        found.dated_by = f"none: {error}"
    return found
