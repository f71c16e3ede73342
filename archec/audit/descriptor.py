"""The two files that say what the tree is, ``layout.json`` and ``0=archec_1.0``: written again where damaged."""

from __future__ import annotations

import os
import re

from archec.audit.findings import Finding
from archec.audit.quarantine import set_aside
from archec.config import Config
from archec.errors import ConfigError, CorruptArchive
from archec.store.directories import held_tists
from archec.store.durable import atomic_write, storage_errors
from archec.store.layout import DESCRIPTOR, NAMASTE, NOTICE, Layout, descriptor_of, open_store
from archec.store.lock import RunLock
from archec.tist import tist_path

_FAN = re.compile(r"[0-9a-f]{2}")


def wrong_notice(layout: Layout) -> Finding | None:
    """What is wrong with ``0=archec_1.0``; None where nothing is."""
    try:
        same = (layout.root / NAMASTE).read_bytes() == NOTICE.encode()
    except OSError as error:
        return Finding("notice", NAMASTE, f"cannot be read: {error.strerror}")
    return None if same else Finding("notice", NAMASTE, "does not say what this archec writes there")


def write_notice(layout: Layout, why: Finding) -> str:
    """Writes ``0=archec_1.0`` again; what was done. Only while holding the run lock."""
    moved = set_aside(layout, NAMASTE, why)
    atomic_write(layout.root / NAMASTE, NOTICE.encode())
    return f"written again{f'; what was there is in {moved}' if moved else ''}"


def write_descriptor(config: Config, copy: str) -> Finding | None:
    """Writes ``layout.json`` again where it is damaged or gone, as the copy at a path or URL has it; what was done.

    Raises :class:`ConfigError` where there is no archive, no copy, or what lies in the store has another layout;
    :class:`archec.errors.LockHeld` where a run is at work. Nothing was written then.
    """
    try:
        open_store(config)
        return None
    except (ConfigError, CorruptArchive) as error:
        damage = error
    root = config.store_path
    if not (root / "runs").is_dir():
        raise damage
    from archec.audit.copies import fanout_in  # imports an HTTP client, which few need

    layout = Layout(root, fanout_in(copy, config))
    for tist in held_tists(layout):
        if (layout.fanout != 0) != _is_fanned(layout, tist):
            raise ConfigError(
                f"{copy}: has a fan-out of {layout.fanout}, and what lies in {root} has another: it is no copy of it",
                hint="nothing was written",
            )
    with RunLock(layout, "repair"):
        why = Finding("layout", DESCRIPTOR, damage.message)
        moved = set_aside(layout, DESCRIPTOR, why)
        atomic_write(root / DESCRIPTOR, descriptor_of(layout.fanout))
    aside = f"; what was there is in {moved}" if moved else ""
    return Finding("layout", DESCRIPTOR, damage.message, fixed=f"written again as in {copy}{aside}")


def _is_fanned(layout: Layout, tist: int) -> bool:
    """Whether one more directory lies between a tist's directory and its obis."""
    directory = layout.root / tist_path(tist)
    with storage_errors(directory), os.scandir(directory) as entries:
        return any(_FAN.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) for entry in entries)
