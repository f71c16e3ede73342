"""``archec prove``: proves that something was recorded before a seal; proofs can be checked without the archive."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from archec.cli.common import READABLE, WHEN, digests_of, find_cited, opened, output_option, report_options
from archec.errors import CorruptArchive, UsageError, storage_errors
from archec.files import read_file
from archec.proof.note import KEY_HINT, VerifierKey, signers, verifier_key
from archec.proof.proving import Consistency, Inclusion, parse_proof, prove_entry, prove_growth
from archec.proof.seal_file import SealFile, read_seal
from archec.proof.sealing import trusted_keys
from archec.store.durable import open_whole
from archec.terminal.output import note, show
from archec.terminal.progress import meter_for
from archec.tist import iso


@click.command()
@click.argument("arguments", nargs=-1, metavar="[ID | CONTENT]")
@click.option("--seal", "seal_file", type=READABLE, help="The seal before which it was recorded, or that of PROOF.")
@click.option("--at", "when", type=WHEN, help="The state of ID as of this tist or date; default: now.")
@click.option("--since", "older", type=READABLE, help="Prove that --seal extends this older seal; also with --check.")
@click.option("--check", "proof_file", type=READABLE, metavar="PROOF", help="Check a proof, and CONTENT against it.")
@click.option("--key", "keys", multiple=True, metavar="KEY|FILE", help="With --check: a trusted verifier key.")
@output_option("Write the proof to this file, atomically; default: stdout.")
@report_options
def prove(
    arguments: tuple[str, ...],
    seal_file: Path | None,
    when: int | None,
    older: Path | None,
    proof_file: Path | None,
    keys: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Prove what was recorded before a seal, or check a proof.

    Without --check, proves the state of ID. The proof contains the line of the journal, with its sha256. Checking it
    with --check needs no archive; with CONTENT, it also checks that the proof is about these bytes. It proves that the
    state was recorded by then, not that it is current. With --since, proves instead that everything sealed earlier is
    in the later seal. If a proof is invalid, the exit code is 6.

    Example: archec prove RePEc:smp:wpaper:2024-01 --seal seal.txt -o proof.txt
    """
    if proof_file is not None:
        if when is not None or output or len(arguments) > 1:
            raise UsageError("--check takes a proof, and optionally CONTENT, --key, --seal and --since")
        content = Path(arguments[0]) if arguments else None
        value = _checked(proof_file, content, keys_of(keys), seal_file, older)
        show(value, *_lines(value), as_json=as_json)
        return
    if as_json:
        raise UsageError("--json is for --check: a proof has a form of its own")
    if seal_file is None or keys or (older is not None) == (len(arguments) == 1):
        raise UsageError("give ID and --seal FILE, or --since FILE and --seal FILE, or --check PROOF")
    with opened(config_file) as archive, meter_for() as meter:
        trusted = trusted_keys(archive.config)
        sealed = _read(seal_file, trusted)
        if older is not None:
            text = str(prove_growth(archive.layout, _read(older, trusted), sealed, meter))
        else:
            obi, cited = find_cited(archive, arguments[0])
            when = cited if when is None else when
            moment = when if when is not None else max(int(time.time()), obi.history.last or 0)
            text = str(prove_entry(archive.layout, obi, moment, sealed, meter))
    if output is None:
        click.echo(text, nl=False)
    else:
        with open_whole(output) as target:
            target.write(text.encode())


def _read(path: Path, trusted: Sequence[VerifierKey]) -> SealFile:
    """A seal. Notes on stderr if it is signed, but by no key that this archive trusts, as when it is damaged."""
    sealed = read_seal(path)
    if trusted and sealed.note.signatures and not signers(sealed.note, trusted):
        note(f"warning: {path}: no trusted key has signed this seal; the proof is worth no more than it")
    return sealed


def keys_of(given: Sequence[str]) -> list[VerifierKey]:
    """Verifier keys, each as text or in a file with one key per line."""
    found: list[VerifierKey] = []
    for one in given:
        path, text = Path(one), one
        with storage_errors(path):
            if len(one) < 4096 and path.is_file():
                text = read_file(path).decode("utf-8", "replace")
            elif "+" not in one:
                raise UsageError(f"{one[:300]}: there is no such file with verifier keys", hint=KEY_HINT)
        found += [verifier_key(line) for line in text.splitlines() if line.strip()]
    return found


def _checked(
    path: Path, content: Path | None, keys: Sequence[VerifierKey], seal_file: Path | None, older: Path | None
) -> dict[str, Any]:
    """The contents of a valid proof about the seals in these files. Raises :class:`CorruptArchive` if it is
    invalid."""
    with storage_errors(path):
        data = path.read_bytes()
    try:
        proof = parse_proof(data)
    except ValueError as error:
        raise CorruptArchive(f"{path}: is not a proof: {error}") from error
    if not proof.holds:
        raise CorruptArchive(f"{path}: is not valid: it does not prove its statement")
    if isinstance(proof, Consistency):
        if content is not None:
            raise UsageError(f"{path}: is a proof about two seals, not about a content")
        old, new = _about(proof.old, keys, path, older), _about(proof.new, keys, path, seal_file)
        return {"proves": "growth", "old": old, "new": new}
    if older is not None:
        raise UsageError(f"{path}: is a proof about one seal, not about an older one")
    return _inclusion(proof, path, content, _about(proof.sealed, keys, path, seal_file))


def _inclusion(proof: Inclusion, path: Path, content: Path | None, about: dict[str, Any]) -> dict[str, Any]:
    change = proof.change
    put = {str(tist): sha256 for tist, sha256 in change.put.items()}
    value: dict[str, Any] = {
        "proves": "inclusion", "id": change.id, "kind": change.kind, "put": put, "index": proof.index,
        "line": proof.line.decode("utf-8", "replace"), "seal": about,
    }  # fmt: skip
    if content is not None:
        sha256 = digests_of(content).sha256
        if sha256 not in put.values():
            raise CorruptArchive(f"{content}: has the sha256 {sha256}, and that is not what {path} proves")
        value["content"] = sha256
    return value


def _about(sealed: SealFile, keys: Sequence[VerifierKey], path: Path, file: Path | None) -> dict[str, Any]:
    """The contents of the seal in a proof. Raises :class:`CorruptArchive` if none of ``keys`` signed it, or if it is
    not that in ``file``."""
    if file is not None and read_seal(file).note.text != sealed.note.text:
        raise CorruptArchive(f"{path}: its seal is not that in {file}")
    names = signers(sealed.note, keys)
    if keys and not names:
        raise CorruptArchive(f"{path}: its seal was signed by none of these keys")
    seal = sealed.seal
    return {
        "origin": seal.origin, "size": seal.size, "root": seal.root.hex(), "made": seal.made,
        "made_time": iso(seal.made), "signed_by": names, "compared_with": str(file) if file is not None else None,
    }  # fmt: skip


def _lines(value: dict[str, Any]) -> Iterator[str]:
    if value["proves"] == "growth":
        yield "the newer seal contains everything that the older one does, unaltered"
        yield _seal_line("older", value["old"], "--since")
        yield _seal_line("newer", value["new"], "--seal")
        return
    yield value["id"]
    for tist, sha256 in value["put"].items():
        yield f"    noted {tist} ({iso(int(tist))}): {f'sha256 {sha256}' if sha256 else 'lost'}"
    if "content" in value:
        yield "    the content matches"
    yield _seal_line("recorded by the time of the", value["seal"], "--seal")


def _seal_line(which: str, about: dict[str, Any], option: str) -> str:
    known = [f"signed by {', '.join(about['signed_by'])}"] if about["signed_by"] else []
    if about["compared_with"]:
        known.append(f"the same as {about['compared_with']}")
    trust = ", ".join(known) or f"its signature was not checked: give --key, or compare it with {option}"
    return f"{which} seal of {about['made_time']}, {about['origin']}, {about['size']:,} lines; {trust}"
