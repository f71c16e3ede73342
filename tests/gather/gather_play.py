"""Plays a random world in a real archive, and compares it with the oracle."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from gather_support import check, histories, lines, make, run
from gather_worlds import Act, World, oracle, some_world, write

from archec.config import Config
from archec.errors import RetractedDataSet, UsageError
from archec.gather.operator_decisions import retract
from archec.gather.run import exit_code
from archec.store import durable


class Player:
    """One archive in which a world happens; ``read`` are the data sets that it knows, ``out`` those retracted."""

    def __init__(self, config: Config, world: World, tarballs: list[Path]) -> None:
        self.config, self.world, self.tarballs = config, world, tarballs
        self.read: set[int] = set()
        self.out: set[int] = set()
        self._runs: dict[int, int] = {}

    def act(self, act: Act) -> None:
        number = act.number
        if act.what == "refused" and number not in self.out:
            assert exit_code(run(self.config, self.tarballs[number])) == 8
        elif act.what in ("gather", "salvage"):
            self._gather(number, salvage=act.what == "salvage")
        elif act.what == "kill" and number not in self.out:
            self._kill(act)
        elif act.what == "retract" and number in self.read - self.out:
            self._retract(number)
        elif act.what == "kill-retract" and number in self.read:
            self._kill_retraction(act)
        elif act.what == "undo" and number in self.out:
            self._retract(number)

    def _gather(self, number: int, *, salvage: bool, resume: bool = False) -> None:
        options = {"complete": self.world.sets[number].complete, "accept": ["all"], "salvage": salvage}
        if number in self.out:
            with pytest.raises(RetractedDataSet, match="--undo"):
                run(self.config, self.tarballs[number], **options)
            return
        report = run(self.config, self.tarballs[number], resume=resume, **options)
        assert exit_code(report) == 0
        self.read.add(number)
        self._runs.setdefault(number, report.run)

    def _retract(self, number: int) -> None:
        """Retracts a data set, or undoes that."""
        retract(self.config, str(self._runs[number]), "it is not RePEc", undo=number in self.out)
        self.out ^= {number}

    def _kill(self, act: Act) -> None:
        options = {"complete": self.world.sets[act.number].complete, "accept": ["all"]}
        if _dies(act, lambda: run(self.config, self.tarballs[act.number], **options)) and act.resume:
            self._resume(act.number)

    def _kill_retraction(self, act: Act) -> None:
        """The next run finishes what was decided; that this one was, is seen by its repetition being refused."""
        _dies(act, lambda: self._retract(act.number))
        try:
            self._retract(act.number)
        except UsageError:
            self.out ^= {act.number}
            self._retract(act.number)
            self._retract(act.number)

    def _resume(self, number: int) -> None:
        with suppress(UsageError):  # it died before its journal had a line, or after its last one
            self._gather(number, salvage=False, resume=True)

    def believed(self) -> list[int]:
        return sorted(self.read - self.out)


def _dies(act: Act, work: Callable[[], object]) -> bool:
    """Work in another process, which dies by itself; or does not come so far, and ends."""
    child = os.fork()
    if not child:
        try:
            durable.arm(act.point, act.hits)
            work()
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return os.WIFSIGNALED(status)


def play(folder: Path, world: World) -> None:
    """Asserts that the archive is what the oracle says, and what an archive is that saw only what counts, in order."""
    tarballs = [write(one, folder, str(n)) for n, one in enumerate(world.sets)]
    player = Player(make(folder / "archive", fanout=256 if len(world.acts) % 2 else 0), world, tarballs)
    for act in world.acts:
        player.act(act)
    believed = player.believed()
    assert histories_of(player.config) == oracle([world.sets[n] for n in believed])
    check(player.config)
    plain = Player(make(folder / "plain"), world, tarballs)
    for number in sorted(believed, key=lambda n: world.sets[n].day):
        plain.act(Act("gather" if world.sets[number].cut is None else "salvage", number))
    if believed:
        assert lines(plain.config) == lines(player.config)


def histories_of(config: Config) -> dict[str, dict[int, str | None]]:
    return {obi: history for obi, history in histories(config).items() if history}


def play_seed(folder: Path, seed: int) -> None:
    """The world of one seed."""
    here = folder / str(seed)
    here.mkdir(parents=True)
    try:
        play(here, some_world(random.Random(seed)))
    finally:
        shutil.rmtree(here)
