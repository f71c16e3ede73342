"""The protocol's own errors: answers of status 200, not failures of the server.

Source: OAI-PMH 2.0, section 3.6. None of them is an :class:`archec.errors.ArchecError`: they tell a
harvester what is wrong with its request and never reach the operator.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["BARE", "Code", "OaiFault"]

Code = Literal[
    "badArgument",
    "badResumptionToken",
    "badVerb",
    "cannotDisseminateFormat",
    "idDoesNotExist",
    "noMetadataFormats",
    "noRecordsMatch",
    "noSetHierarchy",
]

BARE: frozenset[Code] = frozenset(["badVerb", "badArgument"])
"""Faults after which the answer's ``request`` element has no attributes."""


class OaiFault(Exception):
    """One protocol error: its code and what to tell the harvester."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
