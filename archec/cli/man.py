"""``archec man``: manual pages, generated from the help of the commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from archec import __version__
from archec.cli.common import DIRECTORY
from archec.errors import storage_errors
from archec.store.durable import open_whole
from archec.terminal.output import note


@click.command()
@click.argument("directory", type=DIRECTORY)
@click.pass_context
def man(context: click.Context, directory: Path) -> None:
    """Write the manual pages into DIRECTORY.

    There is one page per command: archec.1, archec-gather.1 and so on. In a directory where man finds them, such as
    /usr/local/share/man/man1, 'man archec-gather' shows them.

    Example: archec man man1
    """
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    number = 0
    for number, (name, page) in enumerate(_pages(context.find_root().command, "archec", None), 1):  # noqa: B007
        with open_whole(directory / f"{name}.1") as file:
            file.write(page.encode())
    note(f"{directory}: {number} pages")


def _pages(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    """The name and text of the page of a command and of its subcommands."""
    word = name.rpartition(" ")[2]
    with click.Context(command, parent, info_name=word, **command.context_settings) as context:
        yield name.replace(" ", "-"), "\n".join(_page(command, name, context)) + "\n"
        if isinstance(command, click.Group):
            for word, found in _commands(command, context):
                yield from _pages(found, f"{name} {word}", context)


def _page(command: click.Command, name: str, context: click.Context) -> Iterator[str]:
    title = name.replace(" ", "-")
    body, _, example = inspect.cleandoc(command.help or "").rpartition("\n\nExample: ")
    epilog, _, of_epilog = inspect.cleandoc(command.epilog or "").rpartition("\n\nExample: ")
    summary, _, description = (body or example).partition("\n\n")
    yield f'.TH "{title.upper()}" 1 "" "archec {__version__}" "archec"'
    yield ".SH NAME"
    yield f"{_text(title)} \\- {_text(summary.rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_text(name)}"
    yield _text(" ".join(command.collect_usage_pieces(context)))
    if description:
        yield ".SH DESCRIPTION"
        yield from _paragraphs(description)
    yield ".SH OPTIONS"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield ".TP"
            yield f".B {_text(record[0])}"
            yield _text(record[1])
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for word, found in _commands(command, context):
            yield ".TP"
            yield f".B {_text(word)}"
            yield _text(found.get_short_help_str(1000))
    if epilog:
        yield ".SH EXIT STATUS"
        yield from _paragraphs(epilog)
    yield ".SH EXAMPLE"
    yield from (".nf", _text(of_epilog or example), ".fi")
    if name != "archec":
        yield ".SH SEE ALSO"
        yield f".BR {_text(name.rpartition(' ')[0].replace(' ', '-'))} (1)"


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for word in group.list_commands(context):
        if (found := group.get_command(context, word)) is not None:
            yield word, found


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n{2,}", text)):
        if number:
            yield ".PP"
        literal, lines = paragraph.startswith("\b\n"), paragraph.removeprefix("\b\n").split("\n")
        yield from (".nf", *map(_text, lines), ".fi") if literal else map(_text, lines)


def _text(text: str) -> str:
    """Text with roff requests and escapes quoted."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
