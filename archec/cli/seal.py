"""``archec seal``: writes a signed statement that later proves that nothing was altered."""

from __future__ import annotations

from pathlib import Path

import click

from archec.cli.common import FILE, output_option, report_options
from archec.config import load
from archec.errors import UsageError
from archec.proof.note import new_key
from archec.proof.sealing import make_seal, origin_of
from archec.store.durable import open_whole, write_once
from archec.store.layout import open_store
from archec.terminal.output import echo, echo_json, note
from archec.terminal.progress import meter_for
from archec.tist import iso
from archec.units import counted


@click.command()
@output_option("Write the seal to this new file, atomically; default: stdout.")
@click.option("--new-key", "key_file", type=FILE, help="Create a key that signs seals, and print the verifier key.")
@report_options
def seal(output: Path | None, key_file: Path | None, as_json: bool, config_file: Path | None) -> None:
    """Write a seal: a small statement about all that is recorded.

    It later shows that everything is still there, unaltered ('archec verify --seal'), and proves what was recorded of
    each obi by then ('archec prove'). Store it elsewhere. It is a checkpoint as used by transparency logs, signed if
    seal.key is set. May be used during a run.

    Example: archec seal -o seal.txt
    """
    config = load(config_file)
    if output is not None and output.is_file():
        raise UsageError(f"{output} already exists", hint="a seal is never overwritten: give another file")
    if key_file is not None:
        if output is not None or as_json:
            raise UsageError("--new-key creates a key, not a seal", hint="omit -o and --json")
        _make_key(key_file, origin_of(config))
        return
    with meter_for() as meter:
        made = make_seal(config, open_store(config), meter, lambda text: note(f"warning: {text}"))
    text = str(made.note)
    if output is not None:
        with open_whole(output) as target:
            target.write(text.encode())
    if as_json:
        sealed, signed = made.seal, bool(made.note.signatures)
        about = {"lines": sealed.size, "runs": sealed.runs, "made": sealed.made, "made_time": iso(sealed.made)}
        echo_json({**about, "signed": signed, "seal": text})
    elif output is None:
        click.echo(text, nl=False)
    unsigned = "" if made.note.signatures else ", unsigned: seal.key is not set"
    amount = f"{counted(made.seal.size, 'line')} of {counted(made.seal.runs, 'run')}"
    note(f"sealed {amount}, {iso(made.seal.made)}{unsigned}")


def _make_key(path: Path, name: str) -> None:
    """Writes a new key file, readable only by its owner; prints the public key. Never overwrites a file."""
    key = new_key(name)
    if not write_once(path, f"{key}\n".encode(), mode=0o600):
        raise UsageError(f"{path} already exists", hint="a key is never overwritten: give another file")
    echo(str(key.verifier))
    note(f"created {path} for {key.name}: set seal.key to it, and keep a copy of it in a safe place")
    note("    publish the line on stdout: it is the verifier key")
