"""``archec find``: the obis that hold or held given bytes or a given text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from archec.archive.lookup import Holding, holdings
from archec.catalogue.interface import Checksum
from archec.cli.common import PATH, digests_of, opened, report_options
from archec.config import Config, load
from archec.digest import md5_hex
from archec.errors import NotHeld, UsageError, storage_errors
from archec.redif.files import Blob
from archec.redif.scan import scan
from archec.redif.template import canonical_text
from archec.terminal.output import show_all
from archec.tist import iso
from archec.units import human_size

_LENGTHS = {"md5": 32, "sha256": 64}
_PATIENCE = 5.0


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--sha256", metavar="HEX", help="Bytes with this SHA-256.")
@click.option("--md5", metavar="HEX", help="Bytes with this MD5.")
@click.option(
    "--text",
    type=PATH,
    metavar="FILE",
    help="Obis with the same text as this file: the canonical text of a template, else the extracted text.",
)
@report_options
def find(
    file: Path | None, sha256: str | None, md5: str | None, text: Path | None, as_json: bool, config_file: Path | None
) -> None:
    """Find the obis that hold or held some bytes.

    The bytes are those of FILE, or have the given checksum; --text finds the text of a file instead. Shows from when
    to when each obi held them. Exits with 7 if there are none.

    Example: archec find paper.redif
    """
    if sum(one is not None for one in (file, sha256, md5, text)) != 1:
        raise UsageError("give one of FILE, --sha256, --md5 and --text")
    name = next((name for name, digits in _LENGTHS.items() if re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", str(file))), "")
    if file is not None and name and not file.exists():
        raise UsageError(f"there is no file {file}", hint=f"for a checksum: --{name} {file}")
    config = load(config_file)
    with opened(config) as archive:
        if text is not None:
            wanted: list[tuple[Checksum, str]] = [("text", value) for value in sorted(_texts(config, text))]
        elif md5 is not None:
            wanted = [("md5", _checksum("md5", md5))]
        elif file is not None:
            wanted = [("sha256", digests_of(file).sha256)]
        else:
            wanted = [("sha256", _checksum("sha256", sha256 or ""))]
        found = (one for checksum, value in wanted for one in holdings(archive, checksum, value))
        if not show_all(found, Holding.as_value, _lines, as_json=as_json):
            raise NotHeld("the archive has never held this")


def _checksum(name: str, value: str) -> str:
    bare = value.strip().lower()
    if not re.fullmatch(f"[0-9a-f]{{{_LENGTHS[name]}}}", bare):
        raise UsageError(f"--{name}: {value[:80]!r} is not {_LENGTHS[name]} hexadecimal digits")
    return bare


def _texts(config: Config, path: Path) -> set[str]:
    """The text checksums of a file: those of its templates if there are any, else that of its extracted text."""
    with storage_errors(path), path.open("rb") as file:
        head = file.read(config.max_template_file + 1)
    if len(head) <= config.max_template_file:
        templates = scan(Blob(path.name, head)).templates
        if templates:
            return {md5_hex(canonical_text(template.text)) for template in templates}
    return {_extracted(config, path, head)}


def _extracted(config: Config, path: Path, head: bytes) -> str:
    """The checksum of the text in a file, extracted in a separate process. Raises NotHeld if there is no text."""
    from archec.text.checksum import TextPool  # slow to import
    from archec.text.sniff import sniff

    with TextPool(config.text) as pool:
        pool.extract(str(path), str(path.absolute()), sniff(head))
        while not (done := pool.collect(_PATIENCE)) and pool.pending:
            continue
    if not done or done[0].md5 is None:
        raise NotHeld(f"{path}: no text could be extracted from it: {done[0].reason if done else 'crashed'}")
    return done[0].md5


def _lines(one: Holding) -> Iterator[str]:
    until = f"until {one.until} ({iso(one.until)})" if one.until is not None else "until now"
    yield f"{one.id}  from {one.noted} ({iso(one.noted)}) {until}"
    size = human_size(one.size)
    yield f"    sha256 {one.sha256}  {size}  {one.type}".rstrip()
    yield f"    {one.path or 'its bytes are not in the store'}"
