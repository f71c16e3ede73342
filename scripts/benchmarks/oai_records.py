"""The records of the OAI-PMH benchmark: the same for everybody. Standard library only: peers import it too."""

from __future__ import annotations

import random

__all__ = ["DELETED", "FIRST", "SETS", "fields", "handle", "is_deleted", "stamp", "template"]

FIRST = 1_700_000_000
"""The datestamp of the first records, a tist."""
SETS = ("archive:bmk:wpaper", "type:paper")
DELETED = 50
"""One record in so many is deleted."""
_PER_SECOND = 500
_WORDS = (
    "market", "growth", "labour", "wage", "policy", "trade", "model", "evidence", "panel", "shock", "price", "risk",
    "credit", "bank", "tax", "firm", "household", "inequality", "education", "health", "innovation", "network",
    "monetary", "fiscal", "exchange", "rate", "inflation", "capital", "demand", "supply", "equilibrium", "learning",
    "uncertainty", "information", "contract", "auction", "game", "theory", "estimation", "regional", "migration",
)  # fmt: skip
_draw = random.Random(1)
_ABSTRACTS = [" ".join(_draw.choices(_WORDS, k=68)) for _ in range(997)]


def handle(n: int) -> str:
    """The handle of a record."""
    return f"RePEc:bmk:wpaper:{n:08d}"


def stamp(n: int) -> int:
    """The datestamp of a record, a tist."""
    return FIRST + n // _PER_SECOND


def is_deleted(n: int) -> bool:
    """Whether a record is deleted."""
    return n % DELETED == DELETED - 1


def fields(n: int) -> list[tuple[str, str]]:
    """The Dublin Core of a record."""
    return [
        ("title", f"A study of thing number {n}"),
        ("creator", "Doe, Jane"),
        ("creator", "Roe, Richard"),
        ("subject", "C12"),
        ("subject", "money & banking"),
        ("description", _ABSTRACTS[n % len(_ABSTRACTS)]),
        ("date", "2009-05"),
        ("type", "preprint"),
        ("format", "Application/pdf"),
        ("identifier", handle(n)),
        ("identifier", f"http://example.org/papers/{n}.pdf"),
        ("language", "en"),
        ("relation", "RePEc:bmk:wpaper"),
    ]


def template(n: int) -> str:
    """A template whose Dublin Core this is."""
    return (
        f"Template-Type: ReDIF-Paper 1.0\nTitle: A study of thing number {n}\n"
        "Author-Name: Jane Doe\nAuthor-Name-First: Jane\nAuthor-Name-Last: Doe\n"
        "Author-Name: Richard Roe\nAuthor-Name-First: Richard\nAuthor-Name-Last: Roe\n"
        f"Classification-JEL: C12\nKeywords: money & banking\nAbstract: {_ABSTRACTS[n % len(_ABSTRACTS)]}\n"
        "Creation-Date: 2009-05\n"
        f"File-URL: http://example.org/papers/{n}.pdf\nFile-Format: Application/pdf\nLanguage: en\n"
        f"Handle: {handle(n)}\n"
    )
