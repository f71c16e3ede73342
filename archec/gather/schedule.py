"""The schedule: when a file is due again (design, section 5)."""

from __future__ import annotations

from archec.archive.file_losses import is_lost
from archec.catalogue.model import Visit
from archec.config import Config

_DAY = 86400
_HELD = frozenset({"new", "changed", "same", "not-modified", "cosmetic"})
_REFUSED = frozenset(
    {"forbidden", "robots", "too-large", "bad-url", "bad-certificate", "blocked-address", "denied"}
)


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
