"""The findings of an audit: each has one of these codes, a path, and a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from archec.audit.expected import Entry
from archec.units import counted


class Code(NamedTuple):
    """The meaning of a code. A code that is not ``wrong`` is a note that needs no action."""

    meaning: str
    wrong: bool = True


CODES: Mapping[str, Code] = MappingProxyType(
    {
        # bytes
        "missing": Code("a journal names it, and it is not there"),
        "corrupt": Code("its bytes do not have the sha256 that is recorded"),
        "unreadable": Code("the file system refuses to read it"),
        "not-a-file": Code("a directory, a device or similar is in its place"),
        "journal-disagrees": Code("the catalogue names the sha256 of its bytes, the journal another one"),
        "catalogue-disagrees": Code("the journal names its sha256, the catalogue another one, or a loss"),
        "catalogue-lacks": Code("a journal names it, and the catalogue does not"),
        "journal-lacks": Code("the catalogue names it, and no journal does"),
        # names on disk
        "unexpected": Code("nothing that archec puts there"),
        "unjournalled": Code(
            "an obi that no journal names, and that no stopped run can have left: are the journals an older copy?"
        ),
        "orphan": Code(
            "an obi that no journal names, of a time at which a run was killed, interrupted or failed", wrong=False
        ),
        "misnamed": Code("its name or its directory is not that of an id"),
        "directory-link": Code("a link or a file in place of a directory of the store"),
        "exchanged": Code("a link in place of a file, or a file in place of a link"),
        "mode": Code("its mode is not that of a file that is only to be read", wrong=False),
        "link-escapes": Code("a link that leads out of the store, or to where no obi can be"),
        "link-dangling": Code("a link that leads to nothing, or in a circle"),
        "leftover": Code("temporary files that a killed run left", wrong=False),
        # journals
        "journal-damaged": Code("a journal cannot be read where it must be"),
        "journal-missing": Code("a run or an obi is known, and the journal that records it is not there"),
        "journal-chain": Code("a batch does not follow the one before it: something was removed, swapped or rewritten"),
        "journal-misnamed": Code("a journal is not that of the run by which it is named"),
        "journal-line": Code("a line of a journal says what makes no sense"),
        "journal-torn": Code("the end of an unfinished journal is cut off and does not count", wrong=False),
        "journal-twice": Code("a journal is there both compressed and not", wrong=False),
        "two-contents": Code("journals name two sha256s for one path"),
        # the whole
        "memory-damaged": Code("what was checked when cannot be read, or cannot be recorded", wrong=False),
        "layout": Code("layout.json is damaged"),
        "notice": Code("0=archec_1.0 is missing or says something else", wrong=False),
        "catalogue-behind": Code("the catalogue has not followed the journals to their end", wrong=False),
        "catalogue-refused": Code("the database would not take a document; everything else is there"),
        "catalogue-differs": Code("the catalogue says something else than the journals make of it"),
        "catalogue-counts": Code("the catalogue counts other numbers than it holds"),
        "catalogue-unreadable": Code("the catalogue cannot be opened or read"),
        "not-compared": Code("could not be compared because of another finding, a run or a rebuild", wrong=False),
        "no-scratch-space": Code("there was no room to compare the whole catalogue: exit code 1", wrong=False),
    }
)
"""Every code of a :class:`Finding`; docs/operations.md has the same table."""

BY_COPY = frozenset(("missing", "corrupt", "unreadable", "not-a-file", "link-escapes", "link-dangling"))
"""The codes of entries that a second copy can repair."""
_JOURNALS_BY_COPY = frozenset(("journal-damaged", "journal-missing"))
_BY_FIX = frozenset(("unexpected", "misnamed"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of an audit.

    ``path`` is relative to the archive directory (or names the catalogue); ``tist`` and ``id`` are those of the
    obi, -1 and empty if there is none; ``sha256`` is the expected one, ``found`` that of the bytes.
    ``fixed`` is how it was repaired, empty if it was not.
    """

    code: str
    path: str
    message: str
    tist: int = -1
    id: str = ""
    sha256: str = ""
    found: str = ""
    fixed: str = ""

    @property
    def wrong(self) -> bool:
        """Whether something is wrong and has not been fixed."""
        return CODES[self.code].wrong and not self.fixed

    def as_value(self) -> dict[str, Any]:
        """The JSON object that the commands print; keys without a value are left out."""
        value: dict[str, Any] = {"finding": self.code, "wrong": self.wrong, "path": self.path}
        if self.tist >= 0:
            value |= {"tist": self.tist, "id": self.id}
        texts = {"sha256": self.sha256, "found": self.found, "message": self.message, "fixed": self.fixed}
        return value | {key: text for key, text in texts.items() if text}

    def __str__(self) -> str:
        text = f"{self.code}: {self.path}: {self.message}"
        return f"{text}; {self.fixed}" if self.fixed else text


def about(code: str, entry: Entry, path: str, message: str, found: str = "") -> Finding:
    """A finding about an entry at a path."""
    return Finding(code, path, message, entry.tist, entry.id, entry.sha256, found)


Reporter = Callable[[Finding], None]
"""Called with each finding when it is found."""


@dataclass(slots=True)
class Tally:
    """Counts of findings: ``wrong`` (and not fixed; their codes are ``left``), ``fixed`` and ``notes``."""

    by_code: Counter[str] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    wrong: int = 0
    fixed: int = 0
    notes: int = 0

    def counting(self, report: Reporter) -> Reporter:
        """A function that counts a finding and reports it."""

        def counted(finding: Finding) -> None:
            self.by_code[finding.code] += 1
            self.fixed += bool(finding.fixed)
            self.wrong += finding.wrong
            if finding.wrong:
                self.left.add(finding.code)
            self.notes += not (finding.fixed or finding.wrong)
            report(finding)

        return counted

    def as_value(self) -> dict[str, Any]:
        """The counts of findings in the last JSON line of a command."""
        return {
            "wrong": self.wrong,
            "fixed": self.fixed,
            "notes": self.notes,
            "by_code": dict(sorted(self.by_code.items())),
        }

    def __str__(self) -> str:
        return f"{self.wrong:,} wrong, {self.fixed:,} fixed, {counted(self.notes, 'note')}"

    def as_lines(self) -> list[str]:
        """The number of findings by code, and the remedies, as lines of text."""
        lines = [f"  {code}: {count:,}" for code, count in sorted(self.by_code.items())]
        if not (BY_COPY | _JOURNALS_BY_COPY).isdisjoint(self.left):
            lines.append("'archec verify --repair-from COPY' restores good bytes from a second copy.")
        if not _BY_FIX.isdisjoint(self.left):
            lines.append("'archec check --fix' moves what does not belong in the archive to quarantine.")
        return lines


@dataclass(slots=True)
class Summary:
    """The result of an audit by a ``command``. ``whole``: everything was looked at."""

    command: ClassVar[str]
    whole: bool = False
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or everything was fixed."""
        return not self.tally.wrong

    def as_value(self) -> dict[str, Any]:
        """The last JSON line of the command."""
        value = asdict(self) | {"seconds": round(self.seconds, 3)}
        del value["tally"]
        return {"summary": self.command, "clean": self.clean, **value, **self.tally.as_value()}
