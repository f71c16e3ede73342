"""When files are due: after each visit, with the back-off of those that fail, and the files that are due in a run
(design, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from xxhash import xxh3_64_hexdigest

from archec.archive.file_loss import is_lost
from archec.archive.runs import newest_first
from archec.catalogue.documents import DueFobi
from archec.catalogue.interface import Catalogue
from archec.catalogue.model import Visit
from archec.config import Config, FetchConfig
from archec.gather.options import options_of
from archec.tist import MAX_TIST

_DAY, _YEAR = 86400, 365 * 86400
_HELD = frozenset({"new", "changed", "same", "not-modified", "cosmetic"})
_REFUSED = frozenset({"forbidden", "robots", "too-large", "bad-url", "bad-certificate", "blocked-address", "denied"})
_BY_SETTINGS = ("bad-certificate", "blocked-address", "denied", "robots", "too-large")
"""Outcomes that another configuration may change."""
LAST_ID = "\U0010ffff"
"""Sorts after every id."""
_RUNS = 50
"""Number of runs that are searched for a complete one."""


def next_due(config: Config, visit: Visit, last_noted: int | None, *, lost: bool, deferred: bool = False) -> int:
    """When the visited fobi is due again, in Unix seconds by the clock.

    New and changed files are due after ``revisit_min``, unchanged ones after half the time for which they
    have not changed, between ``revisit_min`` and ``revisit_max``, and gone ones when their loss can be
    confirmed. Faults have a back-off that begins at one day, refusals one that begins at
    ``revisit_min``. ``deferred`` files are due in the next run. A file that no template mentions any more is visited
    half as often after each visit, up to ``revisit_max``.
    """
    shortest, longest = int(config.fetch.revisit_min), int(config.fetch.revisit_max)
    outcome = visit.outcome
    if deferred:
        return visit.when + 1
    if outcome == "gone" and not (lost or is_lost(config, visit)):
        if visit.gone < config.lost_confirmations:
            wait = int(config.lost_grace)
        else:
            wait = visit.gone_when + int(config.lost_grace) - visit.when
        return visit.when + max(wait, 1)
    if outcome in ("new", "changed"):
        wait = shortest
    elif outcome in _HELD:
        unchanged = visit.tist - last_noted if last_noted is not None else 0
        wait = max(shortest, min(longest, unchanged // 2))
    else:
        first = shortest if outcome in _REFUSED or outcome == "gone" else min(_DAY, shortest)
        wait = min(longest, max(first, 1) << min(max(visit.fails - 1, 0), 12))
    if visit.unnamed:
        wait = min(longest, max(wait, 1) << min(visit.unnamed, 12))
    return visit.when + max(wait, 1)


def due_files(catalogue: Catalogue, config: FetchConfig, now: int, run: int = MAX_TIST + 1) -> Iterator[DueFobi]:
    """The files that are due in ``run``, by default the next one.

    A file that is due in more than a year (or ``revisit_max``) was visited with a wrong clock and is due now. A file
    that was refused is due now if the settings have changed since the last complete run.
    """
    beyond = now + max(_YEAR, int(config.revisit_max))
    due = chain(catalogue.due(now), catalogue.due(MAX_TIST, DueFobi(beyond, LAST_ID)))
    runs = islice(newest_first(catalogue, run), _RUNS)
    finished = (options_of(one) for one in runs if one.state in ("done", "held-back"))
    before = next((str(kept.get("refusals", "")) for kept in finished if kept.get("fetch")), "")
    if before in ("", refusals(config)):
        return due
    return chain(due, _not_due(catalogue, now, beyond))


def _not_due(catalogue: Catalogue, now: int, beyond: int) -> Iterator[DueFobi]:
    """The files that were refused, except those that are due anyway."""
    for fobi in catalogue.each("fobi", catalogue.with_outcome(_BY_SETTINGS)):
        if now < fobi.due <= beyond:
            yield DueFobi(fobi.due, fobi.id)


def refusals(config: FetchConfig) -> str:
    """A checksum of the settings by which archec itself refuses to fetch or to keep a file."""
    rules = (
        config.allow_networks, config.deny, config.insecure_hosts, config.max_size, config.robots, config.robots_tags,
    )  # fmt: skip
    return xxh3_64_hexdigest(repr(rules).encode())
