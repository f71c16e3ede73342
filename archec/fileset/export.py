"""Exports a fileset into a folder: its files under their safe paths, and a description in one of several formats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from archec import __version__
from archec.archive.opening import Archive
from archec.catalogue.model import FilesetManifestFile
from archec.digest import Digests, md5_hex, sha256_hex
from archec.errors import ArchecError, CorruptArchive, StorageFailed, UsageError, failure
from archec.fileset.lookup import REMEDY, HeldFileset, open_file
from archec.fileset.manifest import is_whole, not_held, safe_path
from archec.tist import iso

_PIECE = 1 << 20
_CROISSANT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{name: f"cr:{name}" for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet", "format",
        "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references",
        "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
    )},
}  # fmt: skip
"""The JSON-LD context in the appendix of Croissant 1.0."""
_METADATA = "https://w3id.org/ro/crate/1.1"
_MARK = "~unfinished-export"
"""A file in the directory of an export until it is complete, which says what is exported. No safe path is like it."""


def export(
    archive: Archive, held: HeldFileset, form: str, folder: Path, *, fetch: bool = False, again: bool = False
) -> int:
    """Writes a fileset into a new or empty directory, in a format of ``WRITERS``, or continues an export of the same
    that did not end. Returns the number of files: those that are held; for ``urls``, those with a URL, and a bundle.
    ``fetch``: a bag has fetch.txt instead of data. ``again``: files with the same bytes may exist already.

    Raises UsageError if the directory is not empty, CorruptArchive if bytes do not match the manifest. Directories that
    are then empty are removed.
    """
    is_new, mark = not folder.exists(), folder / _MARK
    what = f"{form} {held.obi.id} {held.tist} {fetch}\n".encode()
    may_continue = again or _is_unfinished(folder, what)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not may_continue:
            mark.write_bytes(what)
        if form == "urls":
            listed = [*held.manifest.manifest, *filter(None, [held.manifest.bundle])]
            files = [file for file in listed if file.platform_url]
        else:
            files = list(filter(is_whole, held.manifest.manifest))
        WRITERS[form](_Export(archive, held, files, folder, fetch))
        if not again:
            mark.unlink()
    except (ArchecError, OSError) as error:
        _remove_empty(folder, itself=is_new)
        if isinstance(error, OSError):
            raise failure(error, folder) from error
        raise
    return len(files)


def _is_unfinished(folder: Path, what: bytes) -> bool:
    """Whether a directory has an unfinished export of the same. Raises UsageError if it has anything else."""
    mark = folder / _MARK
    try:
        if mark.is_file() and mark.read_bytes() == what:
            return True
        # The mark is empty if an export was killed before it had written anything.
        if folder.exists() and any(path != mark or path.stat().st_size for path in folder.iterdir()):
            raise UsageError(f"{folder}: is not empty", hint="use a new or an empty directory")
    except OSError as error:
        raise failure(error, folder) from error
    return False


def _remove_empty(folder: Path, *, itself: bool) -> None:
    if not any(files for path, _, files in os.walk(folder) if (path, files) != (str(folder), [_MARK])):
        (folder / _MARK).unlink(missing_ok=True)
    for path, _, _ in os.walk(folder, topdown=False):
        if itself or Path(path) != folder:
            with suppress(OSError):
                os.rmdir(path)


class _Export(NamedTuple):
    """One export. ``files`` are the files that it has."""

    archive: Archive
    held: HeldFileset
    files: list[FilesetManifestFile]
    folder: Path
    fetch: bool


def _copy(of: _Export, file: FilesetManifestFile, target: Path) -> None:
    """Writes one file and verifies its sha256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        with open(target, "rb") as there:
            if Digests.of(there).sha256 == file.sha256:
                return
        raise UsageError(f"{target}: is not the file of the data set", hint="remove it, or use a new directory")
    digests, part = Digests(), target.with_name(f".{file.sha256}.part")
    try:
        with open_file(of.archive, file, of.held.manifest.bundle) as stream, open(part, "wb") as out:
            while data := stream.read(_PIECE):
                digests.update(data)
                out.write(data)
        if digests.sha256 != file.sha256:
            message = f"{file.path}: has sha256 {digests.sha256}, but {file.sha256} is in the manifest"
            raise CorruptArchive(message, hint=REMEDY)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def _folder(of: _Export) -> None:
    for file in of.files:
        _copy(of, file, of.folder / safe_path(file))


def _sum_lines(kind: str, files: list[FilesetManifestFile], folder: str = "") -> str:
    return "".join(f"{getattr(file, kind)}  {folder}{safe_path(file)}\n" for file in files)


def _sums(kind: str, of: _Export) -> None:
    (of.folder / f"{kind}sums.txt").write_text(_sum_lines(kind, of.files), encoding="utf-8")


def _urls(of: _Export) -> None:
    lines = [f"{_url(file)}\n" for file in of.files]
    (of.folder / "urls.txt").write_text("".join(lines), encoding="utf-8")


def _url(file: FilesetManifestFile) -> str:
    """The URL of a file on one line: blanks, line ends and control characters are escaped."""
    return "".join(quote(c) if c == " " or not c.isprintable() else c for c in file.platform_url or "")


# -- BagIt (RFC 8493) -------------------------------------------------------------------------------


def _bagit(of: _Export) -> None:
    folder, files, held = of.folder, of.files, of.held
    if of.fetch and not all(file.platform_url for file in files):
        raise UsageError("--fetch: files of a bundle have no URLs of their own", hint="export the data set without it")
    (folder / "data").mkdir(exist_ok=True)
    if not of.fetch:
        _folder(of._replace(folder=folder / "data"))
    # BagIt 1.0 escapes percent signs in paths, which some readers do not support; 0.97 does not escape them.
    version = "0.97" if any("%" in safe_path(file) for file in files) else "1.0"
    tags = {"bagit.txt": f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n"}
    for kind in ("md5", "sha256"):
        tags[f"manifest-{kind}.txt"] = _sum_lines(kind, files, "data/")
    if of.fetch:
        tags["fetch.txt"] = "".join(f"{_url(file)} {file.size} data/{safe_path(file)}\n" for file in files)
    manifest, size = held.manifest, sum(file.size or 0 for file in files)
    description, known = ". ".join(filter(None, (manifest.title, not_held(manifest.manifest)))), _about(held)
    about = (
        ("Bagging-Date", iso(held.tist)[:10]),
        ("Bag-Software-Agent", f"archec {__version__}"),
        ("External-Identifier", f"{manifest.fileset}@{manifest.version or held.tist}"),
        ("External-Identifier", known["identifier"] if known["identifier"] != manifest.fileset else ""),
        ("External-Identifier", known.get("url", "")),
        ("External-Description", description),
        ("Payload-Oxum", f"{size}.{len(files)}"),
    )
    tags["bag-info.txt"] = "".join(f"{name}: {' '.join(value.split())}\n" for name, value in about if value)
    for name, text in tags.items():
        (folder / name).write_text(text, encoding="utf-8")
    for kind, digest in (("md5", md5_hex), ("sha256", sha256_hex)):
        lines = (f"{digest(text.encode())}  {name}\n" for name, text in sorted(tags.items()))
        (folder / f"tagmanifest-{kind}.txt").write_text("".join(lines), encoding="utf-8")


# -- descriptions in JSON ---------------------------------------------------------------------------


def _described(name: str, describe: Callable[[HeldFileset, list[FilesetManifestFile]], Any], of: _Export) -> None:
    if any(safe_path(file).casefold().partition("/")[0] == name for file in of.files):
        raise StorageFailed(f"the data set itself has {name}", hint="export it as a bag")
    _folder(of)
    with (of.folder / name).open("w", encoding="utf-8") as out:  # as one text, a large one takes twice the memory
        json.dump(describe(of.held, of.files), out, indent=2, ensure_ascii=False)
        out.write("\n")


def _ro_crate(held: HeldFileset, files: list[FilesetManifestFile]) -> dict[str, Any]:
    about = _about(held)
    root = {
        "@id": "./", "@type": "Dataset", **about, "datePublished": about.get("datePublished", iso(held.tist)[:10]),
        "license": about.get("license", "see the landing page"),
        "hasPart": [{"@id": _entity(file)} for file in files],
    }  # fmt: skip
    entities = [
        {"@id": _entity(file), "@type": "File", "name": file.path, "contentSize": str(file.size), "sha256": file.sha256,
         **({"encodingFormat": file.mimetype} if file.mimetype else {}),
         **({"contentUrl": file.platform_url} if file.platform_url else {})}
        for file in files
    ]  # fmt: skip
    descriptor = {
        "@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"},
        "conformsTo": {"@id": _METADATA},
    }  # fmt: skip
    return {"@context": f"{_METADATA}/context", "@graph": [descriptor, root, *entities]}


def _entity(file: FilesetManifestFile) -> str:
    return quote(safe_path(file), safe="/!$&'()*+,;=:@~")


def _data_package(held: HeldFileset, files: list[FilesetManifestFile]) -> dict[str, Any]:
    names: dict[str, int] = {}
    about = _about(held)
    return {
        "profile": "data-package", "id": about["identifier"], "title": about["name"],
        "description": about["description"],
        **({"version": about["version"]} if "version" in about else {}),
        **({"homepage": about["url"]} if "url" in about else {}),
        "resources": [
            {"name": _resource_name(file, names), "path": safe_path(file), "bytes": file.size,
             "hash": f"sha256:{file.sha256}", **({"mediatype": file.mimetype} if file.mimetype else {})}
            for file in files
        ],
    }  # fmt: skip


def _resource_name(file: FilesetManifestFile, names: dict[str, int]) -> str:
    """A unique name of lower-case letters, digits and ``-_./``."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_./") else "-" for c in safe_path(file).lower())
    names[plain] = names.get(plain, 0) + 1
    return plain if names[plain] == 1 else f"{plain}-{names[plain]}"


def _croissant(held: HeldFileset, files: list[FilesetManifestFile]) -> dict[str, Any]:
    return {
        "@context": _CROISSANT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
        **_about(held),
        "distribution": [
            {"@type": "cr:FileObject", "@id": f"file-{number}", "name": safe_path(file), "contentUrl": safe_path(file),
             "contentSize": f"{file.size} B", "encodingFormat": file.mimetype or "application/octet-stream",
             "sha256": file.sha256, "md5": file.md5}
            for number, file in enumerate(files, 1)
        ],
    }  # fmt: skip


def _about(held: HeldFileset) -> dict[str, Any]:
    """The schema.org properties of the Dataset itself."""
    manifest = held.manifest
    doi, description = manifest.metadata.get("doi"), manifest.metadata.get("description")
    if not isinstance(description, str) or not description:
        description = manifest.title or manifest.fileset
    found: dict[str, Any] = {
        "name": manifest.title or manifest.fileset,
        "description": "\n\n".join(filter(None, (description, not_held(manifest.manifest)))),
        "identifier": f"https://doi.org/{doi}" if isinstance(doi, str) and doi else manifest.fileset,
        "url": manifest.web_base_url,
        "version": manifest.version,
        "license": manifest.metadata.get("license"),
        "datePublished": iso(manifest.published)[:10] if manifest.published else None,
    }
    return {name: value for name, value in found.items() if value}


WRITERS: Mapping[str, Callable[[_Export], None]] = {
    "bagit": _bagit,
    "ro-crate": partial(_described, "ro-crate-metadata.json", _ro_crate),
    "datapackage": partial(_described, "datapackage.json", _data_package),
    "croissant": partial(_described, "croissant.json", _croissant),
    "folder": _folder,
    "md5sums": partial(_sums, "md5"),
    "sha256sums": partial(_sums, "sha256"),
    "urls": _urls,
}
"""The formats of an export."""
