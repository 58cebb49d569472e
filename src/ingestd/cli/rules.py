"""`ingestd rules`: check rule files before they are deployed."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingestd.cli import where
from ingestd.cli.errors import FAILED, CommandError

if TYPE_CHECKING:
    from ingestd.documents import Problem

app = typer.Typer(help="Check rule files.", no_args_is_help=True)


@app.callback()
def rules() -> None:
    """Check rule files."""


@app.command()
def lint(
    path: Annotated[str, typer.Argument(help="A rule file, a folder of them, or gs://bucket/prefix.")],
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    state: where.State = None,
) -> None:
    """Check rules and print every problem with its file and line; errors make it fail."""
    from ingestd.documents import Severity
    from ingestd.rules.lint import lint_path, report

    if path.startswith("gs://"):
        problems = asyncio.run(_lint_bucket(where.enter(state), path))
    elif Path(path).exists():
        problems = lint_path(Path(path))
    else:
        raise CommandError(f"there is no {path}")
    typer.echo(report(problems))
    if any(strict or problem.severity is Severity.ERROR for problem in problems):
        raise typer.Exit(FAILED)


async def _lint_bucket(project: str, url: str) -> "list[Problem]":
    from ingestd.gcp.connect import connect
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.lint import lint

    async with connect(project) as clients:
        return await lint(rule_source(url, clients.store))
