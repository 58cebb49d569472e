"""`ingestd rules`: check, show and test rule files before they are deployed."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ingestd.cli import where
from ingestd.cli.errors import FAILED, CommandError
from ingestd.cli.terminal import Json, output, print_json
from ingestd.model.unknown_keys import UnknownKeys

if TYPE_CHECKING:
    from ingestd.cli.rule_tests import Outcome, RuleTestFile
    from ingestd.documents import Problem
    from ingestd.rules.lint_dest import ExpressionChecks
    from ingestd.rules.loading import RuleBook
    from ingestd.rules.rule import Rule
    from ingestd.rules.source import RuleSource

app = typer.Typer(help="Check, show and test rule files.", no_args_is_help=True)

RulesPath = Annotated[str, typer.Argument(help="A rule file, a folder of them, or gs://bucket/prefix.")]


Unknown = Annotated[
    UnknownKeys,
    typer.Option(
        "--unknown-keys",
        envvar="INGESTD_RULES__UNKNOWN_KEYS",
        help="Keys a rule does not have: [b]typos[/] refuses misspelt ones and warns of the others, [b]refuse[/] "
        "refuses all, [b]warn[/] none (bqtail's way).",
    ),
]


@app.callback()
def rules() -> None:
    """Check, show and test rule files."""


@app.command()
def lint(
    path: RulesPath,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    unknown: Unknown = UnknownKeys.TYPOS,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Check rules and print every problem with its file and line; errors make it fail."""
    from ingestd.documents import Severity
    from ingestd.rules.lint import report
    from ingestd.rules.source import FolderSource

    if path.startswith("gs://"):
        problems = asyncio.run(_lint_bucket(where.enter(state), path, unknown))
    elif Path(path).exists():
        problems = asyncio.run(_lint(FolderSource(Path(path)), path, unknown))
    else:
        raise CommandError(f"there is no file or folder {path}")
    if as_json:
        print_json([_problem(problem) for problem in problems])
    else:
        typer.echo(report(problems))
    if any(strict or problem.severity is Severity.ERROR for problem in problems):
        raise typer.Exit(FAILED)


@app.command()
def show(
    path: RulesPath,
    name: Annotated[str, typer.Argument(help="One rule, in full. [dim]Default: a table of all.[/]")] = "",
    unknown: Unknown = UnknownKeys.TYPOS,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Show rules as the daemon understands them: what they take, where it goes, what follows."""
    book = _book(path, state, unknown)
    chosen = [rule for rule in book.rules if not name or name in (rule.name, rule.name.rpartition("/")[2])]
    if name and not chosen:
        from ingestd.documents import did_you_mean

        raise CommandError(f"there is no rule {name!r}{did_you_mean(name, [rule.name for rule in book.rules])}")
    if as_json:
        print_json([rule.to_json() for rule in chosen])
    elif name:
        for rule in chosen:
            _show_one(rule)
    else:
        _show_all(chosen)
    _refuse_broken(book)


@app.command("test")
def check(
    tests: Annotated[list[Path], typer.Argument(help="Test files, or folders of them (*.yaml).")],
    rules_path: Annotated[
        str, typer.Option("--rules", help="The rules to test. [dim]Default: what the test file says.[/]")
    ] = "",
    unknown: Unknown = UnknownKeys.TYPOS,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Run unit tests of rules: given paths, expect a rule, a table, a window. docs/command-line.md has the format."""
    from ingestd.cli.rule_tests import find_test_files, run_tests

    outcomes: list[Outcome] = []
    books: dict[str, RuleBook] = {}
    for file in find_test_files(tests):
        source = _rules_of(file, rules_path)
        if source not in books:
            books[source] = _book(source, state, unknown)
            _refuse_broken(books[source])
        outcomes += run_tests(file, books[source])
    failed = [one for one in outcomes if not one.passed]
    if as_json:
        print_json([one.to_json() for one in outcomes])
    else:
        _report(outcomes)
    if failed:
        raise typer.Exit(FAILED)


def _rules_of(file: "RuleTestFile", given: str) -> str:
    if given:
        return given
    named = file.content.rules
    if named is None:
        raise CommandError(f"{file.path}: which rules? Write `Rules: folder` in it, or give --rules")
    return named if named.startswith("gs://") else str(file.path.parent / named)


def _report(outcomes: "list[Outcome]") -> None:
    for one in outcomes:
        mark = "[green]ok[/]  " if one.passed else "[bold red]FAIL[/]"
        output.print(f"{mark} {escape(one.name)}" + ("" if one.passed else f"  [dim]{escape(str(one.place))}[/]"))
        for failure in one.failures:
            output.print(f"       {escape(failure)}")
    failed = sum(not one.passed for one in outcomes)
    counted = f"{len(outcomes)} test{'s' * (len(outcomes) != 1)}"
    output.print(f"[bold red]{failed} of {counted} failed[/]" if failed else f"[green]{counted} passed[/]")


def _book(path: str, state: Path | None, unknown: UnknownKeys) -> "RuleBook":
    from ingestd.rules.loading import RuleLoader
    from ingestd.rules.source import FolderSource

    if path.startswith("gs://"):
        return asyncio.run(_bucket_book(where.enter(state), path, unknown))
    if not Path(path).exists():
        raise CommandError(f"there is no file or folder {path}")
    _quiet()
    return asyncio.run(RuleLoader(FolderSource(Path(path)), unknown=unknown).refresh())


async def _bucket_book(project: str, url: str, unknown: UnknownKeys) -> "RuleBook":
    from ingestd.gcp.connect import connect
    from ingestd.rules.bucket import rule_source
    from ingestd.rules.loading import RuleLoader

    _quiet()
    async with connect(project) as clients:
        return await RuleLoader(rule_source(url, clients.store), unknown=unknown).refresh()


def _quiet() -> None:
    """What is wrong with rule files is printed here, not logged."""
    from ingestd.ops.logging import configure

    configure("console", "critical")


def _refuse_broken(book: "RuleBook") -> None:
    from ingestd.documents import DocumentError

    if book.problems:
        raise DocumentError(book.problems)


def _show_all(rules: "list[Rule]") -> None:
    if not rules:
        output.print("no rules")
        return
    table = Table("rule", "takes")
    table.add_column("into", no_wrap=True)  # a table's name is what people look for: others give way
    for heading in ("window", "on success", "on failure"):
        table.add_column(heading)
    for rule in rules:
        spec = rule.spec
        batch = f"{spec.batch.duration.total_seconds():g} s" if spec.batch else "file by file"
        cells = [
            rule.name + (" (disabled)" if spec.disabled else ""),
            _takes(rule),
            spec.dest.table + (f"${spec.dest.partition}" if spec.dest.partition else ""),
            batch + (", async" if spec.async_ else ""),
            ", ".join(action.name for action in spec.on_success) or "nothing",
            ", ".join(action.name for action in spec.on_failure) or "nothing",
        ]
        table.add_row(*map(escape, cells))
    output.print(table)


def _takes(rule: "Rule") -> str:
    when, matcher = rule.spec.when, rule.matcher
    parts = [f"{when.prefix}…" * bool(when.prefix), f"…{when.suffix}" * bool(when.suffix), matcher.pattern]
    return " ".join(filter(None, [*parts, f"but not {when.exclusion}" * bool(when.exclusion)])) or "every file"


def _show_one(rule: "Rule") -> None:
    import yaml

    from ingestd.rules.rule import pinned

    output.print(f"[bold]{escape(rule.name)}[/]  [dim]{escape(rule.url)}  {rule.content_hash[:12]}[/]")
    typer.echo(yaml.safe_dump(pinned(rule.spec), sort_keys=False, allow_unicode=True), nl=False)


def _problem(problem: "Problem") -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "severity": problem.severity,
    }


async def _lint_bucket(project: str, url: str, unknown: UnknownKeys) -> "list[Problem]":
    from ingestd.gcp.connect import connect
    from ingestd.rules.bucket import rule_source

    async with connect(project) as clients:
        return await _lint(rule_source(url, clients.store), url, unknown)


async def _lint(source: "RuleSource", path: str, unknown: UnknownKeys) -> "list[Problem]":
    """Whoever checks rules has some: a wrong folder must not look like a clean one."""
    from ingestd.rules.lint import lint, rule_files
    from ingestd.rules.parsing import RULE_SUFFIXES

    if not await rule_files(source):
        raise CommandError(f"there are no rules in {path}; the names of rule files end in {', '.join(RULE_SUFFIXES)}")
    return await lint(source, _checks(), unknown)


def _checks() -> "ExpressionChecks":
    """With what only Spark's half of the daemon knows."""
    from ingestd.rules.lint_dest import ExpressionChecks
    from ingestd.spark.sql.checker import unsupported

    return ExpressionChecks(unsupported)
