"""``archec``: the command group, and the conversion of errors to exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from archec import __version__
from archec.cli.completion import COMPLETE
from archec.cli.runreport import RUN_LINE, RunLine
from archec.errors import ArchecError, Exit, failure
from archec.terminal.output import ReaderGone, guard, note

_EPILOG = """\b
Exit codes: 0 done; 1 error; 2 usage error; 3 done, but losses are held
back; 4 another run holds the lock; 5 budget exhausted, resumable;
6 corrupted archive; 7 not held at that time; 8 damaged data set;
9 no network; 130 interrupted, state kept.

Example: archec init my-archive"""


_COMMANDS = (
    "init", "gather", "demo", "history", "get", "find", "dump", "rebuild", "redif", "check-tarball", "serve", "access",
    "verify", "check", "compare", "seal", "prove", "fork", "export", "losses", "retract", "lost", "changes", "coverage",
    "runs", "status", "report", "metrics", "completion", "man", "fileset",
)  # fmt: skip
"""Each command is a function in a module of this package; both have its name (with ``_`` for ``-``)."""


class _Commands(click.Group):
    """The commands, each imported when it is first used, because most need only a part of archec."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            close = get_close_matches(args[0], _COMMANDS, 1)
            raise click.UsageError(
                f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""), context
            )
        return super().resolve_command(context, args)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = name.replace("-", "_")
        with _stopped_at_once():
            command: click.Command = getattr(import_module(f"archec.cli.{module}"), module)
        return command


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="archec")
def cli() -> None:
    """A time-addressed dark archive for RePEc: what was there at any moment, bit for bit."""


def _terminate(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _stopped_at_once() -> Iterator[None]:
    """Within it, a signal ends the process without a word. Modules that are written in C may swallow KeyboardInterrupt
    while they are imported, and the command would go on."""
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda *_: os._exit(Exit.INTERRUPTED))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def main() -> NoReturn:
    """Runs the command line. Every :class:`ArchecError` becomes one message and an exit code."""
    if COMPLETE in os.environ:
        sys.exit(shell_complete(cli, {}, "archec", COMPLETE, os.environ[COMPLETE]))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _terminate)
    guard()
    code: int | None = None
    context: click.Context | None = None
    message = ""
    try:
        try:
            # Not cli.main(): it converts a broken pipe to exit code 1.
            with cli.make_context("archec", sys.argv[1:]) as context:
                cli.invoke(context)
        except click.exceptions.Exit as asked:
            code = asked.exit_code
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.parent is None:
            note(f"options go after the command: archec COMMAND {error.option_name} ...")
        code, message = error.exit_code, error.format_message()
    except (KeyboardInterrupt, click.Abort):
        message = "interrupted; work done so far is kept"
        if context is not None and RUN_LINE in context.meta and context.meta[RUN_LINE].can_be_resumed:
            message += "; 'archec gather --resume' continues"
        note(message)
        code = Exit.INTERRUPTED
    except ArchecError as error:
        note(error)
        code, message = error.exit_code, str(error)
    except ReaderGone:
        code = code or Exit.DONE
    except OSError as error:
        gone = error.strerror == os.strerror(errno.ENOENT)  # tempfile raises errors with texts of its own
        nameless = "the current directory" if gone else "this machine"
        failed = failure(error, str(error.filename or nameless))
        note(failed)
        code, message = failed.exit_code, str(failed)
    except Exception as error:
        if context is None or not _gathers(context):
            raise
        traceback.print_exc()
        code, message = Exit.OPERATOR_ERROR, repr(error)
    if context is not None and _gathers(context) and (code or RUN_LINE in context.meta):  # not for --help
        context.meta.get(RUN_LINE, RunLine()).write(int(code or 0), message)
    with suppress(ArchecError, ReaderGone):  # flushing the rest of the buffer may fail again
        sys.stdout.flush()
    sys.exit(int(code or 0))


def _gathers(context: click.Context) -> bool:
    """Whether the command always ends its log with a line for programs."""
    return context.invoked_subcommand == "gather"
