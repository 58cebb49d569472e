"""What goes wrong on the command line is one readable line with the remedy, and an exit code that scripts can see.

A traceback is for developers: `ingestd --debug …` shows it.
"""

from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from ingestd.cli.pipes import unread
from ingestd.cli.terminal import errors
from ingestd.model.errors import IngestError

FAILED = 1
INTERRUPTED = 130
UNEXPECTED = 70  # EX_SOFTWARE of sysexits


class CommandError(Exception):
    """A mistake or a circumstance the user can do something about; the message says what."""


class ReadableErrors(TyperGroup):
    """The root command: every failure below it ends here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as raised:
            if ctx.params.get("debug") or (isinstance(raised, BrokenPipeError) and unread()):
                raise
            from ingestd.documents import DocumentError

            error = _first(raised)
            if isinstance(error, CommandError | DocumentError | IngestError | OSError):
                errors.print(f"[bold red]error:[/] {escape(_words(error))}")
                raise typer.Exit(FAILED) from None
            errors.print(f"[bold red]error:[/] unexpected {type(error).__name__}: {escape(str(error))}")
            errors.print("[dim]`ingestd --debug …` shows where it came from[/]")
            raise typer.Exit(UNEXPECTED) from None


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _first(error: Exception) -> Exception:
    """The cause to show of a group of failures: concurrent tasks fail together, but one line has to do."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
