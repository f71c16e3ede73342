"""Problems of a data set, each with a code, a file and a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CHANGED = "changed-while-reading"
"""The code of a file or directory that changed while it was read, which therefore says nothing of what it lacks."""

CODES: Mapping[str, str] = {
    # a data set as a whole
    "no-checksum": "the tarball is compressed without a checksum: damage in it may not be found",
    "one-end-block": "the tarball ends with one block of NULs in place of two",
    # a file that could not be read (the source says so with an Unread)
    "bad-member": "a tar member that archec does not take: link, device, sparse, odd header, part of a directory",
    "bad-name": "a name with '..', a NUL, bytes that are not UTF-8, over 4096 bytes, or an absolute name",
    CHANGED: "the file or directory changed or vanished while it was read",
    "link": "a symbolic or hard link, which is never followed",
    "too-deep": "directories nested deeper than archec descends",
    "too-large": "larger than max_file, or one template larger than 4 MiB",
    "truncated": "the tarball, or a file in it, is cut off or damaged",
    "unreadable": "the file system refused to open or read it",
    # a file that was read
    "binary": "binary data in place of templates",
    "commented-out": "every template of the file is commented out",
    "conflict-marker": "a version-control conflict marker is published inside a template",
    "empty": "an empty file in place of templates",
    "html-page": "a web page in place of templates",
    "mixed-encoding": "lines in UTF-8 and lines in cp1252 in one file",
    "no-template": "the file holds no template",
    "utf-16-damaged": "UTF-16 that is cut in half or shifted by a byte",
    # a template
    "bad-url": "a File-URL that is not a URL the archive keeps",
    "too-many-files": "more File-URLs in one template than archec follows: 100,000 characters of them",
    "cluster-without-key": "a cluster's field stands before the field that opens the cluster",
    "empty-url": "a File-URL without a value",
    "no-handle": "a template without a handle; it is not stored",
    "two-handles": "two handles in one template; the first one counts",
    "bad-handle": "a handle that does not follow the form RePEc:aaa:ssssss:item; one that is a URL is not stored",
    # lint only
    "bad-value": "the value of a field is not of the form that the field has",
    "duplicate": "another template of the files has the same handle; if it is known to count, the message says so",
    "encoding-guess": "not UTF-8 and without a byte-order mark; cp1252 is assumed",
    "indented-template": "a Template-Type line that begins with white space: the template is swallowed",
    "missing-field": "a field that the template's type requires is missing or empty",
    "misplaced": "the handle is not of the archive and series in whose directory the file lies",
    "other-name": "the name is not that of a template file",
    "repeated-field": "a field that a template has once at most is repeated",
    "text-before-template": "text before the first template is ignored",
    "unicode-form": "a handle or path that differs from another one in its Unicode form only",
    "unknown-field": "a field that the template's type does not have",
    "unknown-type": "a template type that ReDIF does not have",
}
"""Every code of a :class:`Problem` and its meaning; docs/formats.md has the same table."""

WARNINGS = frozenset({
    "bad-value", "cluster-without-key", "commented-out", "empty-url", "encoding-guess", "misplaced", "mixed-encoding",
    "no-checksum", "one-end-block", "other-name", "repeated-field", "text-before-template", "unicode-form",
    "unknown-field",
})
"""Codes of problems that lose nothing but may not be intended. All others are errors: a file, a template or a link is
not read, or not as intended."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a data set; never fatal.

    ``path`` is printable (see :func:`shown`); ``line`` counts from 1, and is 0 for the file as a whole; ``code`` is a
    key of CODES; ``message`` is for people and never shows a password.
    """

    path: str
    line: int
    code: str
    message: str

    @property
    def severity(self) -> str:
        return "warning" if self.code in WARNINGS else "error"

    def as_value(self) -> dict[str, str | int]:
        return {
            "path": self.path,
            "line": self.line,
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
        }

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.code}: {self.message}"


def shown(path: str) -> str:
    """A path in printable form: characters that are not printable or not UTF-8 become escapes."""
    if path.isprintable():
        return path
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)


def brief(text: str, longest: int) -> str:
    """A text in printable form; ``...`` replaces its middle if it has more than ``longest`` characters."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}...{text[-(longest // 4) :]}"
    return shown(text)
