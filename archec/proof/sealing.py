"""Makes seals and checks them: whether everything sealed is there, unaltered, and the journals have only grown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from archec.catalogue.journal_lines import Fork
from archec.config import Config
from archec.errors import BrokenChain, ConfigError, StorageFailed, storage_errors
from archec.files import read_file
from archec.progress import Meter
from archec.proof.journal_tree import State, digest_of, hashed, remember, remembered, status_of
from archec.proof.note import SigningKey, VerifierKey, signers, signing_key, verifier_key
from archec.proof.seal_file import Seal, SealFile
from archec.store.layout import Layout, journals
from archec.tist import iso, stamp
from archec.units import counted


def origin_of(config: Config) -> str:
    return config.seal.origin or "-".join(config.name.replace("+", "-").split()) or "archec"


def own_key(config: Config) -> SigningKey | None:
    """The key that signs this archive's seals; None if none is configured."""
    if not config.seal.key:
        return None
    path = config.path(config.seal.key)
    with storage_errors(path):
        try:
            text = read_file(path).decode("utf-8", "replace")
        except FileNotFoundError:
            where = f"{config.place('seal.key')}: {path}"
            raise ConfigError(f"{where}: does not exist", hint="'archec seal --new-key' creates it") from None
    return signing_key(text, str(path))


def trusted_keys(config: Config) -> list[VerifierKey]:
    """The keys whose signatures are trusted: the archive's own, and those of ``seal.keys``."""
    own = own_key(config)
    return ([own.verifier] if own is not None else []) + [verifier_key(text) for text in config.seal.keys]


def make_seal(config: Config, layout: Layout, meter: Meter, warn: Callable[[str], None]) -> SealFile:
    """Seals the current state of the archive; a run may be active. Reads what is new since the last seal, or everything
    the first time. ``warn`` receives a message if the state cannot be stored, so that the next seal reads everything
    again.

    Raises :class:`archec.errors.CorruptJournal` if the journals are not one valid chain, :class:`ConfigError` if the
    key is unusable or has a different name than the seals.
    """
    memory = config.memory("sealed.json")
    key = own_key(config)
    origin = origin_of(config)
    if key is not None and key.name != origin:
        raise ConfigError(
            f"{config.place('seal.key')}: the key is that of {key.name}, but seals of this archive are of {origin}",
            hint=f"set seal.origin to {key.name}, or create a key for {origin} with 'archec seal --new-key'",
        )
    meter.phase("hashing journals", None)
    known, files = remembered(memory), journals(layout)
    status = {journal.tist: status_of(journal) for journal in files[-1:]}
    if known is not None and known.before != digest_of(files, known.run):
        known = None  # not the journals of the stored state, which is ignored
    try:
        state = _last(layout, known, meter)
    except BrokenChain:
        if known is None:
            raise
        state = _last(layout, None, meter)
    state = replace(state, file=status.get(state.run, state.file), before=digest_of(files, state.run))
    try:
        remember(memory, state)
    except StorageFailed as error:
        warn(f"{error.message}; the next seal reads all journals again: make {memory.parent} writable")
    seal = state.seal(origin, stamp())
    return SealFile(seal, key.sign(seal.note()) if key is not None else seal.note())


def _last(layout: Layout, known: State | None, meter: Meter) -> State:
    state = known or State()
    for state in hashed(layout, known):
        meter.at(state.size, f"run {state.run}")
    return state


def _gives_up(fork: Fork, seal: Seal) -> bool:
    """Whether a fork declares that the last sealed batch is lost."""
    kept, lost = fork.kept, fork.lost
    return (kept.run, kept.batch) < (seal.run, seal.batch) <= (lost.run, lost.batch)


@dataclass(frozen=True, slots=True)
class SealCheck:
    """The result of checking a seal. ``fault`` is what is wrong, empty if nothing is. ``signed_by`` are the known keys
    that signed it. ``since`` is the number of lines added to the journals since. ``fork`` is a declared fork that
    explains the fault."""

    name: str
    seal: Seal
    fault: str = ""
    signed_by: tuple[str, ...] = ()
    since: int = 0
    fork: Fork | None = None

    def as_value(self) -> dict[str, Any]:
        seal = self.seal
        return {
            "seal": self.name, "fault": self.fault, "origin": seal.origin, "size": seal.size, "made": seal.made,
            "made_time": iso(seal.made), "signed_by": list(self.signed_by), "since": self.since,
            "fork": self.fork.as_value() if self.fork is not None else None,
        }  # fmt: skip

    def as_lines(self) -> Iterator[str]:
        if self.fault:
            yield f"{self.name}: {'DECLARED' if self.fork is not None else 'WRONG'}: {self.fault}"
            if self.fork is not None:
                yield f"    run {self.fork.run} declares that an older copy was restored: {self.fork.reason}"
            return
        names = ", ".join(self.signed_by)
        by = f"signed by {names}" if names else "its signature was not checked: there are no seal.keys"
        yield f"{self.name}: all {self.seal.size:,} lines sealed {iso(self.seal.made)} are there, unaltered"
        yield f"    added since: {counted(self.since, 'line')}; {by}"


def check_seals(
    layout: Layout, seals: Sequence[tuple[str, SealFile]], keys: Sequence[VerifierKey], meter: Meter
) -> list[SealCheck]:
    """Reads all journals and compares them with each of the seals, which are given with their names."""
    meter.phase("hashing journals", max((file.seal.size for _, file in seals), default=0) or None)
    at: dict[tuple[int, int], State] = {}
    wanted = {(file.seal.run, file.seal.batch) for _, file in seals}
    last, broken = State(), ""
    try:
        for last in hashed(layout):
            meter.at(last.size, f"run {last.run}")
            if (last.run, last.batch) in wanted:
                at[last.run, last.batch] = last
    except BrokenChain as error:
        broken = error.message
    return [_judge(name, file, at, last, broken, keys) for name, file in seals]


def _judge(
    name: str,
    file: SealFile,
    at: dict[tuple[int, int], State],
    last: State,
    broken: str,
    keys: Sequence[VerifierKey],
) -> SealCheck:
    seal = file.seal
    names = tuple(signers(file.note, keys))

    def verdict(fault: str, fork: Fork | None = None) -> SealCheck:
        return SealCheck(name, seal, fault, names, last.size - seal.size, fork)

    if keys and not file.note.signatures:
        return verdict("no trusted key has signed it: it is unsigned")
    if keys and not names:
        return verdict("no trusted key has signed it, or its text was changed after signing")
    if broken:
        return verdict(f"the chain of batches is broken: {broken}")
    where = f"batch {seal.batch} of run {seal.run}"
    state = at.get((seal.run, seal.batch)) if seal.run else State()
    fork = next((fork for fork in last.forks if _gives_up(fork, seal)), None)
    if state is None:
        end = f"the journals end with batch {last.batch} of run {last.run}"
        behind = (last.run, last.batch) < (seal.run, seal.batch)
        why = end if behind else "the journals have diverged"
        return verdict(f"{where} was sealed but is missing: {why}", fork)
    if state.head != seal.head:
        why = "it, or one before it, was rewritten"
        return verdict(f"{where} is not the one that was sealed {iso(seal.made)}: {why}", fork)
    if (state.size, state.seal(seal.origin, seal.made).root) != (seal.size, seal.root):
        return verdict(f"the {seal.size} lines up to {where} are not those that were sealed {iso(seal.made)}")
    return verdict("")
