"""The hosts of a run: when one may be asked again, and whether the network is up (design, section 5).

A host that sent Retry-After or was given up is not asked until that time has passed: in this run, in later ones and
after a rebuild, because it is journalled. Times are Unix seconds by the clock at the start of the run, advanced by a
monotonic one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from archec.catalogue.model import HostState
from archec.config import FetchConfig
from archec.ids import host_of
from archec.web.outcome import Hop

_DAY = 86400
_LONGEST = 30 * _DAY
"""Maximum time for which a host is not asked."""
_NOTED = 60.0
"""Shorter waits are kept in memory only, not journalled."""
_NETWORK = 300.0
"""Seconds for which an answer of another host proves that the network is up."""
_LEAST_SILENT = 3
_UNASKED = frozenset(("bad-url", "blocked-address", "denied", "internal"))
"""Outcomes that do not imply an answer of a host."""
_MOST = 100_000


class HostTable:
    """The hosts of a run; see the module. ``since``: the clock at the start of the run."""

    def __init__(
        self,
        config: FetchConfig,
        states: Iterable[HostState],
        run: int,
        since: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._run, self._since = config, run, since
        self._states = {state.host: state for state in states}
        self._clock, self._began = clock, clock()
        self._until = {state.host: float(state.until) for state in self._states.values() if state.until > since}
        self._silent: set[str] = set()
        self._answered: dict[str, float] = {}
        """The last two different hosts that answered, with their times."""
        self._given_up: set[str] = set()

    # -- when a host may be asked -------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._since + self._clock() - self._began

    def is_bound(self, url: str) -> bool:
        """Whether the host of a URL must not be asked in this run, because the wait is longer than ``max_delay``."""
        until = self._until.get(host_of(url))
        return until is not None and until - self.now > self._config.max_delay

    def known(self) -> Iterator[tuple[str, int, float]]:
        """The input for a pool of fetchers: name, failures in a row, seconds to wait. A host that was given up before
        is given up again at its first failure."""
        now, faults = self.now, self._config.host_failures - 1
        for host in self._states.keys() | self._until.keys():
            state = self._states.get(host)
            wait = self._until.get(host, 0.0) - now
            if wait <= self._config.max_delay and (wait > 0 or (state is not None and state.fails)):
                yield host, faults if state is not None and state.fails else 0, max(0.0, wait)

    def heard(self, hop: Hop) -> HostState | None:
        """Updates the state of a hop's host; returns the state to journal, if any."""
        host = host_of(hop.url)
        if is_silent(hop):
            if len(self._silent) < _MOST:
                self._silent.add(host)
        elif not hop.deferred and (hop.status or str(hop.outcome) not in _UNASKED):
            self._answer(host)
            self._silent.discard(host)
        state = self._states.get(host)
        if hop.wait > 0:
            return self._bind(host, self.now + min(hop.wait, _LONGEST), hop)
        fine = hop.kind != "failed" or (hop.outcome is not None and not hop.outcome.is_transient)
        if fine and not hop.deferred and state is not None and state.fails:
            return self._note(HostState(host, self._run, state.until if state.until > self.now else 0))
        return None

    def gave_up(self, hop: Hop) -> HostState | None:
        """Makes the host of a deferred hop wait, with increasing delay, if the host itself caused the deferral.
        Returns the state to journal, if any."""
        host = host_of(hop.url)
        if hop.outcome is None or not hop.outcome.is_transient or host in self._given_up or self.is_bound(hop.url):
            return None
        if len(self._given_up) < _MOST:
            self._given_up.add(host)
        state = self._states.get(host)
        fails = (state.fails if state is not None else 0) + 1
        wait = min(_LONGEST, min(_DAY // 2, int(self._config.revisit_min)) << min(fails - 1, 12))
        return self._note(HostState(host, self._run, int(self.now) + wait if wait else 0, fails, hop.message[:200]))

    def _bind(self, host: str, until: float, hop: Hop) -> HostState | None:
        if until <= self._until.get(host, 0.0):
            return None
        self._until[host] = until
        state = self._states.get(host)
        if hop.wait < _NOTED or (state is not None and until - state.until < _NOTED):
            return None
        fails = state.fails if state is not None else 0
        what = f"HTTP {hop.status}" if hop.status else "robots.txt"
        return self._note(HostState(host, self._run, int(until) + 1, fails, f"{what} with Retry-After"))

    def _note(self, state: HostState) -> HostState:
        self._states[state.host] = state
        return state

    # -- the network --------------------------------------------------------------------------------

    def _answer(self, host: str) -> None:
        if host not in self._answered and len(self._answered) > 1:
            del self._answered[min(self._answered, key=self._answered.__getitem__)]
        self._answered[host] = self._clock()

    def has_network(self, url: str) -> bool:
        """Whether a host other than that of the URL has answered within the last five minutes, so that a failure counts
        against this host."""
        host, now = host_of(url), self._clock()
        return any(now - when <= _NETWORK for other, when in self._answered.items() if other != host)

    @property
    def is_cut_off(self) -> bool:
        """Whether hosts were tried and none answered."""
        return not self._answered and len(self._silent) >= _LEAST_SILENT

    @property
    def is_hopeless(self) -> bool:
        """Whether the run is cut off and began more than five minutes ago."""
        return self.is_cut_off and self._clock() - self._began > _NETWORK


def is_silent(hop: Hop) -> bool:
    """Whether nothing was received from the host: the network may be down."""
    return hop.kind == "failed" and not hop.status and str(hop.outcome) in ("unreachable", "timeout")
