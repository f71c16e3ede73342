"""The layout of an obi store: its descriptor on disk, f(tist, id), the path of an obi, and what lies where: its
directories, opened safely, and its journals.

``layout.json`` contains everything that f depends on and never changes; ``0=archec_1.0`` describes the same in words.
Design, section 3. A path is walked component by component with O_NOFOLLOW (:class:`Directories`), so a directory that
was swapped for a link causes an error; the root itself may be a link.
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from archec.closing import Closing
from archec.config import Config
from archec.errors import BadName, ConfigError, CorruptArchive, failure, storage_errors
from archec.files import read_file
from archec.ids import escape, name_in, unescape
from archec.store.durable import Disk, atomic_write, fsync_dir, is_temp

VERSION = 1
MAX_NAME = 255
"""Maximum length of a path component in bytes on ext4, xfs and btrfs (NAME_MAX)."""
_HASH_TAIL = 1 + 32
_LIKE_CUT = re.compile(r".*~[0-9a-f]{32}", re.S)
DESCRIPTOR = "layout.json"
NAMASTE = "0=archec_1.0"
RUNS = "runs"
FANOUTS = (0, 256)
_MOST_BYTES = 1 << 16
_DESCRIBED = f"{NAMASTE} describes its contents"
_RESTORE = f"'archec verify --repair-from COPY' restores it from a second copy; {_DESCRIBED}"
_INIT = "check that it is mounted and the path is right; 'archec init' creates a new archive"
_FIXED: dict[str, object] = {
    "version": VERSION,
    "inversion": "decimal digits of the tist reversed, '/' after the third and the sixth",
    "name": "uri_escape_utf8",
    "max_name": MAX_NAME,
    "long_name": "prefix ~ xxh3_128",
    "fan": "first two hex digits of xxh3_64",
}
_OPEN_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_INNER = _OPEN_ROOT | os.O_NOFOLLOW
JOURNAL_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.jsonl(\.gz)?")
"""The name of a journal: the tist of its run, and whether it is compressed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An obi store: its root, and the mapping of (tist, id) to a path in it."""

    root: Path
    fanout: int = 0

    def directory(self, tist: int, id: str) -> str:  # noqa: A002
        """The relative directory of an obi noted at ``tist``."""
        return f"{tist_path(tist)}/{fan(id)}" if self.fanout else tist_path(tist)

    def path(self, tist: int, id: str) -> str:  # noqa: A002
        """f(tist, id): the relative path of an obi, with ``/`` between its parts."""
        return f"{self.directory(tist, id)}/{file_name(id)}"

    @property
    def depth(self) -> int:
        """The number of directories between the root and an obi's file."""
        return 4 if self.fanout else 3

    @property
    def runs(self) -> Path:
        return self.root / RUNS


# -- the parts of f(tist, id) ----------------------------------------------------------------------


@lru_cache(maxsize=1024)
def tist_path(tist: int) -> str:
    """The relative directory of a tist: its decimal digits reversed, ``/`` after the third and the sixth.

    (The paper's own example has slips: 1352481230 is inverted to 0321842531, so its directory is ``032/184/2531``.)
    """
    if tist < 0:
        raise BadName(f"{tist} is not a tist: it is negative")
    digits = str(tist)[::-1]
    if len(digits) < 7:
        # Before 1970-01-12: padded, so that every tist has three levels.
        digits = digits.ljust(10, "0")
    return f"{digits[:3]}/{digits[3:6]}/{digits[6:]}"


def tist_of_path(path: str) -> int:
    """The tist of a relative directory in the form of :func:`tist_path`. Raises :class:`BadName`."""
    digits = path.replace("/", "")
    tist = int(digits[::-1]) if digits.isdecimal() else -1
    if tist < 0 or tist_path(tist) != path:
        raise BadName(f"{path!r} is not the directory of a tist")
    return tist


def fan(obi: str) -> str:
    """The two hex digits of xxh3_64(id) that name the fan-out directory of an id."""
    return xxh3_64_hexdigest(obi.encode("utf-8", "surrogatepass"))[:2]


def file_name(obi: str) -> str:
    """The file name of an id: its escaped form or, if that is over 255 bytes, a prefix, ``~`` and xxh3_128 of the id.

    The dots of the ids ``.`` and ``..`` are escaped, since no file can have those names. An id whose name looks
    truncated is hashed as well, so that no two ids share a name.
    """
    name = escape(obi)
    if len(name) <= MAX_NAME and not _is_like_cut(name):
        return name if name.strip(".") or len(name) > 2 else name.replace(".", "%2E")
    cut = min(MAX_NAME, len(name)) - _HASH_TAIL
    for back in (1, 2):  # never cut inside an escape: %C3 would become %C or %
        if name[cut - back] == "%":
            cut -= back
            break
    digest = xxh3_128_hexdigest(obi.encode("utf-8", "surrogatepass"))
    return f"{name[:cut]}~{digest}"


def _is_like_cut(name: str) -> bool:
    """Whether a name is a truncated one, or looks like it."""
    return len(name) > MAX_NAME - 3 and _LIKE_CUT.fullmatch(name) is not None


def id_of_name(name: str) -> str | None:
    """The id for a name on disk; None if the name is truncated, or is not the name of an obi."""
    if _is_like_cut(name):
        return None
    if name in ("%2E", "%2E%2E"):
        return "." * (len(name) // 3)
    with suppress(BadName):
        return unescape(name)
    return None


def named_by(path: str) -> tuple[str, str, str]:
    """The file name in a path of the obi store, and the range of ids, without its end, that may have it: of a truncated
    name all that begin like it. Empty texts if it is no such path."""
    name = name_in(path)
    if not name:
        return "", "", ""
    is_cut = _is_like_cut(name)
    begin = unquote_to_bytes(name[:-_HASH_TAIL] if is_cut else name).decode("utf-8", "ignore")
    return name, begin, begin + ("\U0010ffff" if is_cut else "\0")


# -- the descriptor ---------------------------------------------------------------------------------


def create(root: str | Path, *, fanout: int = 0) -> Layout:
    """Creates an empty obi store at ``root``, or opens an existing one with the same fan-out.

    ``fanout`` is 0 (flat) or 256. Raises :class:`ConfigError` for another value, for an existing store with another
    fan-out, for a directory with other contents, and for an unsuitable file system.
    """
    if fanout not in FANOUTS or isinstance(fanout, bool):
        raise ConfigError(f"a fan-out of {fanout} is not possible", hint="use 0 or 256")
    root = Path(root).absolute()
    disk = Disk()
    if (root / DESCRIPTOR).exists():
        layout = open_layout(root)
        if layout.fanout != fanout:
            raise ConfigError(
                f"{root}: is already an archive with a fan-out of {layout.fanout}",
                hint="the fan-out is chosen once and never changed",
            )
        return layout
    with storage_errors(root):
        _make(root, disk)
        names = set(os.listdir(root)) - {NAMASTE, RUNS, "lost+found"}
        foreign = sorted(name for name in names if not (name.startswith(".git") or is_temp(name)))
        if foreign:
            raise ConfigError(
                f"{root}: holds {foreign[0]!r} and is not an archive", hint="use an empty or a new directory"
            )
        _make(root / RUNS, disk)
        _check_file_system(root)
    atomic_write(root / NAMASTE, NOTICE.encode(), disk=disk)
    atomic_write(root / DESCRIPTOR, descriptor_of(fanout), disk=disk)
    return Layout(root, fanout)


def _check_file_system(root: Path) -> None:
    """Raises :class:`ConfigError` if an archive's names would not be possible here, or not distinct."""
    lacks = "does not distinguish upper and lower case in names" if (root / RUNS.upper()).exists() else ""
    link = root / f".+{'0-0':0>{MAX_NAME - 7}}.part"  # a temporary name, because a kill may leave it
    try:
        with suppress(FileExistsError):
            os.symlink(NAMASTE, link)
        link.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.ENAMETOOLONG):
            raise
        lacks = f"has no symbolic links with names of {MAX_NAME} bytes"
    if lacks:
        raise ConfigError(f"{root}: its file system {lacks}", hint="use another one, such as ext4, xfs or btrfs")


def descriptor_of(fanout: int) -> bytes:
    """The bytes of the descriptor of a store with this fan-out."""
    return f"{json.dumps({**_FIXED, 'fanout': fanout}, indent=2, sort_keys=True)}\n".encode()


def _make(directory: Path, disk: Disk) -> None:
    """Creates a directory and its parents durably."""
    if directory.is_dir():
        return
    _make(directory.parent, disk)
    directory.mkdir(exist_ok=True)
    fsync_dir(directory.parent, disk=disk)


def open_layout(root: str | Path) -> Layout:
    """The obi store at ``root``.

    Raises :class:`ConfigError` if there is none or its version is newer than this archec supports,
    :class:`CorruptArchive` if its descriptor is damaged.
    """
    root = Path(root).absolute()
    path = root / DESCRIPTOR
    try:
        data = read_file(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        is_archive = any((root / RUNS).glob("*.jsonl*"))
        message = f"{root}: is not an archive: it has no {DESCRIPTOR}"
        raise ConfigError(message, hint=_RESTORE if is_archive else _INIT) from None
    except OSError as error:
        if os.path.lexists(path) and not os.path.isfile(path):
            raise CorruptArchive(f"{path}: is not a file", hint=_RESTORE) from error
        raise failure(error, path) from error
    try:
        return Layout(root, fanout_of(data, str(path)))
    except CorruptArchive as error:
        raise CorruptArchive(error.message, hint=_RESTORE) from error


def open_store(config: Config) -> Layout:
    """The obi store of a configuration; like :func:`open_layout`, with file and key in its messages."""
    try:
        return open_layout(config.store_path)
    except ConfigError as error:
        raise ConfigError(f"{config.place('object_store')}: {error.message}", hint=error.hint) from error


def fanout_of(descriptor: bytes, path: str) -> int:
    """The fan-out in the bytes of a descriptor; ``path`` is for messages. Raises the errors of :func:`open_layout`."""
    try:
        found = json.loads(descriptor)
    except (ValueError, RecursionError) as error:
        raise CorruptArchive(f"{path}: is not JSON", hint=_DESCRIBED) from error
    if not isinstance(found, dict):
        raise CorruptArchive(f"{path}: must contain one JSON object")
    version = found.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise CorruptArchive(f"{path}: has no version")
    if version != VERSION:
        raise ConfigError(
            f"{path}: this archive has layout version {version}; this archec supports version {VERSION}",
            hint="use a newer archec",
        )
    for key, value in _FIXED.items():
        if key not in found or found[key] != value:
            raise CorruptArchive(f"{path}: {key} must be {value!r} in version {VERSION}")
    unknown = sorted(set(found) - set(_FIXED) - {"fanout"})
    if unknown:
        raise CorruptArchive(f"{path}: {unknown[0]!r} is unknown in version {VERSION}")
    fanout = found.get("fanout")
    if not isinstance(fanout, int) or isinstance(fanout, bool) or fanout not in FANOUTS:
        raise CorruptArchive(f"{path}: fanout must be 0 or 256")
    return fanout


NOTICE = """\
archec 1.0

What this is
  An archive of what RePEc (Research Papers in Economics) said, and of the files it pointed to, at
  every moment that somebody looked. Everything needed to read it is in this folder; a database
  beside it, if there is one, is only an index and can be made again from here.
  Files here are never changed and never removed once they have their name.

Times
  A tist is a time: the number of seconds since 1970-01-01T00:00:00 UTC, as a decimal number.

Where an object is
  Each object has an id. For a description (a ReDIF template) it is the RePEc handle, such as
  RePEc:aaa:ssssss:1; white space is removed, and all after "RePEc:" is in lower case. For a file it
  is the URL, normalised after RFC 3986, section 6.2.2, with the fragment dropped.

  The path of an object as noted at a tist is made of the two and of nothing else:
  1. The digits of the tist in reverse order, with a / after the third and the sixth. (A tist of less
     than seven digits: zeros are added at the end of the reversed digits until there are ten.)
     1352481230 -> 0321842531 -> 032/184/2531
  2. If "fanout" in layout.json is 256: one more directory, the first two hexadecimal digits (lower
     case) of the 64-bit XXH3 hash (seed 0) of the id in UTF-8. If it is 0: nothing.
  3. The name: the id in UTF-8, every byte but A-Z a-z 0-9 - . _ ~ written as % and two upper-case
     hexadecimal digits. The ids "." and ".." have their dots written as %2E. If the name would be
     longer than 255 bytes: its first 222 bytes (less one or two, where an escape would be cut in
     two), then ~, then the 32 hexadecimal digits of the 128-bit XXH3 hash of the whole id in UTF-8.
     The journals hold the whole id.
     RePEc:aaa:ssssss:1 -> RePEc%3Aaaa%3Assssss%3A1
  So http://openlib.org/home/krichel/ as noted at 1352481230 is
     032/184/2531/http%3A%2F%2Fopenlib.org%2Fhome%2Fkrichel%2F

  Only what was new or had changed at a tist lies at that tist. What an object was at some other time
  is the file of the newest tist before it, unless a journal says that it was lost in between.

What a file is
  A description: one ReDIF template, in UTF-8, lines ended by LF. A file: the bytes that the server
  sent as the body (not changed, not decompressed where the server compressed them).
  A symbolic link: the URL redirected, and this is where to; it leads to the name of the next URL, in
  this directory or in that of an earlier tist. Where two URLs differ by a slash at the end only, there
  may be just one of the two names; try the other.
  Two names of one file (hard links): the object was the same again after it had been otherwise.
  Names that begin with ".+" and end with ".part": the leavings of a run that was cut off. Ignore them.

The journals
  runs/TIST.jsonl.gz (gzip) or, of a run that did not finish, runs/TIST.jsonl: what the run that began
  at that tist saw. Each line is one JSON object in UTF-8, and its "type" says what it tells: the run
  and its data set, an object that appeared, changed or was lost, a redirect, what the server said of a
  file, the files that a template names, the end of the run.
  Lines come in batches. The last line of each is
     {"type":"batch","n":NUMBER,"lines":COUNT,"stamp":TIST,"prev":HASH,"sha256":HASH}
  with the batch's number from 1 on, the count of the lines before it that belong to it, the time it
  was written, the SHA-256 of the batch before it (of all runs, in the order of their tists; zeros in
  the first), and the SHA-256 of all the batch's bytes before ,"sha256" (line ends included).
  Lines after the last whole batch of a run that did not finish do not count.
  Read in the order of their tists the journals give every object's history: checksums, times, losses.

lock
  Is locked (flock) by the run that works here; says which one it is or was. It holds no data.
"""
"""The text of ``0=archec_1.0``: what an obi store is, for someone who finds it without archec."""


class Directories(Closing):
    """A bounded cache of open directories by relative path; ``""`` is the root. A context manager, for all threads.

    A returned descriptor stays open for at least ``limit`` - 1 further calls, and while its thread holds ``lock``. Both
    methods raise :class:`CorruptArchive` if a component is a link or not a directory. ``disk`` creates missing
    directories.
    """

    def __init__(self, layout: Layout, disk: Disk | None = None, *, limit: int = 128) -> None:
        self.layout = layout
        self._disk = disk
        self._limit = limit
        self._open: dict[str, int] = {}
        self.lock = RLock()
        with storage_errors(layout.root):
            self.root = os.open(layout.root, _OPEN_ROOT)

    def find(self, relative: str) -> int | None:
        """The directory at ``relative``, None if there is none; nothing is created."""
        return self._get(relative, None)

    def make(self, relative: str) -> int:
        """The directory at ``relative``, created if it is missing. Its name is durable once its parent is synced."""
        fd = self._get(relative, self._disk or Disk())
        if fd is None:
            raise CorruptArchive(f"{self.layout.root}/{relative}: cannot be created")
        return fd

    def _get(self, relative: str, make: Disk | None) -> int | None:
        with self.lock:
            if not relative:
                return self.root
            fd = self._open.pop(relative, None)
            if fd is None:
                fd = self._walk(relative, make)
                if fd is None:
                    return None
                if len(self._open) >= self._limit:
                    os.close(self._open.pop(next(iter(self._open))))
            self._open[relative] = fd  # at the end: the first one is the least recently used
            return fd

    def _walk(self, relative: str, make: Disk | None) -> int | None:
        fd = self.root
        try:
            walked = ""
            for part in relative.split("/"):
                walked = f"{walked}/{part}" if walked else part
                deeper = _step(fd, part, f"{self.layout.root}/{walked}", make)
                if deeper is None:
                    return None
                if fd != self.root:
                    os.close(fd)
                fd = deeper
            result, fd = fd, self.root
            return result
        finally:
            if fd != self.root:
                os.close(fd)

    def forget(self) -> None:
        """Closes all but the root, so that moved directories are noticed."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def close(self) -> None:
        """Closes all; may be called repeatedly."""
        self.forget()
        if self.root >= 0:
            os.close(self.root)
        self.root = -1


def _step(fd: int, part: str, where: str, make: Disk | None) -> int | None:
    try:
        with suppress(FileNotFoundError):
            return os.open(part, _OPEN_INNER, dir_fd=fd)
        if make is None:
            return None
        make.mkdir(part, fd, where)
        return os.open(part, _OPEN_INNER, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            message = f"{where}: a directory of the store was replaced by a file or a link"
            raise CorruptArchive(message) from error
        raise failure(error, where) from error


class JournalFile(NamedTuple):
    """One run's journal on disk; ``finished``: it has been closed and compressed."""

    tist: int
    path: Path
    finished: bool


def journals(layout: Layout) -> list[JournalFile]:
    """All journals in the order of their tists; if a crash left both forms, the finished one."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = names_of_journals(layout)
    found: dict[int, JournalFile] = {}
    for name in names:
        match = JOURNAL_NAME.fullmatch(name)
        if match is not None and (match[2] or int(match[1]) not in found):
            found[int(match[1])] = JournalFile(int(match[1]), layout.runs / name, bool(match[2]))
    return [found[tist] for tist in sorted(found)]


def names_of_journals(layout: Layout) -> list[str]:
    """What is in the directory of journals. Raises FileNotFoundError if it is missing."""
    try:
        return os.listdir(layout.runs)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise failure(error, layout.runs) from error
        hint = "move it away; then 'archec verify --repair-from COPY' restores the journals from a second copy"
        raise CorruptArchive(f"{layout.runs}: is not a directory", hint=hint) from error


def journal_of(layout: Layout, run: int) -> JournalFile | None:
    return next((journal for journal in journals(layout) if journal.tist == run), None)
