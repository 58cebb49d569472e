"""The command itself: options in, preflight, a run, a table out."""

import asyncio
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ingestd.cli import where
from ingestd.cli.checkup import Check, Mark
from ingestd.cli.doctor import show_check
from ingestd.cli.errors import FAILED, CommandError
from ingestd.cli.terminal import Json, duration, errors, output, print_json

if TYPE_CHECKING:
    from ingestd.cli.acceptance.estate import Estate
    from ingestd.cli.acceptance.run import Report
    from ingestd.cli.acceptance.scenarios import Scenario


def acceptance(
    project: Annotated[str, typer.Option("--project", metavar="ID", help="The Google Cloud project.")],
    bucket: Annotated[str, typer.Option("--bucket", metavar="NAME", help="A bucket of it; objects get a prefix.")],
    dataset: Annotated[
        str, typer.Option("--dataset", metavar="NAME", help="A dataset; made, and removed again, if it is not there.")
    ],
    location: Annotated[
        str, typer.Option(help="Where the dataset is made. [dim]Default: where the bucket is.[/]")
    ] = "",
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this scenario.")] = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", metavar="NAME", help="Without this scenario.")] = None,
    timeout: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="At most, for all scenarios.")
    ] = timedelta(minutes=10),
    check: Annotated[bool, typer.Option("--check", help="Only say what is missing; make nothing.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything there to look at.")] = False,
    clean: Annotated[str, typer.Option(metavar="RUN", help="Remove what that run left, and do nothing else.")] = "",
    as_json: Json = False,
) -> None:
    """Prove it on a real project: a daemon, files, windows, Spark, routes and trouble, with resources of its own.

    Everything it makes carries the run's name and is removed at the end, whatever happened. See docs/acceptance.md.
    """
    from ingestd.cli.acceptance import run as runs
    from ingestd.cli.acceptance.estate import Estate, is_run, new_run
    from ingestd.ops.logging import configure

    configure("console", "error")
    where.check_reachable()
    scenarios = _chosen(only or [], skip or [])
    if clean:
        if not is_run(clean):
            raise CommandError(f"{clean} is no run: its name is ten digits and four more characters")
        left = asyncio.run(runs.clean(Estate(project, bucket, dataset, clean)))
        if as_json:
            print_json({"left": left})
        for one in left:
            _warn(f"not removed: {one}")
        if left:
            raise typer.Exit(FAILED)
        return
    checks, place = _preflight(project, bucket, dataset, location, scenarios, quiet=as_json)
    failed = [one for one in checks if one.mark is Mark.FAILED]
    if check or failed:
        if as_json:
            print_json({"passed": not failed, "preflight": [one.to_json() for one in checks]})
        elif failed:
            errors.print(f"[bold red]{len(failed)} to mend before a run[/]")
        raise typer.Exit(FAILED if failed else 0)
    estate = Estate(project, bucket, dataset, new_run(), place)
    report = asyncio.run(_interruptible(estate, scenarios, timeout.total_seconds(), keep=keep, quiet=as_json))
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)
    if not report.passed:
        raise typer.Exit(FAILED)


def _chosen(only: list[str], skip: list[str]) -> "tuple[Scenario, ...]":
    from ingestd.cli.acceptance.scenarios import SCENARIOS

    names = [one.name for one in SCENARIOS]
    for name in (*only, *skip):
        if name not in names:
            raise CommandError(f"there is no scenario {name}; there are {', '.join(names)}")
    chosen = tuple(one for one in SCENARIOS if one.name not in skip and (not only or one.name in only))
    if not chosen:
        raise CommandError("no scenario is left to play")
    return chosen


def _preflight(
    project: str, bucket: str, dataset: str, location: str, scenarios: "tuple[Scenario, ...]", *, quiet: bool
) -> tuple[list[Check], str]:
    """Every line of the checklist, and where the jobs run: where the dataset is, or will be."""
    from ingestd.cli.acceptance.preflight import examine
    from ingestd.gcp.provisioning import Provisioner

    found = []
    with Provisioner(project) as cloud:
        for one in examine(cloud, bucket, dataset, location, spark=any(one.spark for one in scenarios)):
            found.append(one)
            if not quiet:
                show_check(one)
        if any(one.mark is Mark.FAILED for one in found):
            return found, ""
        facts = cloud.bucket(bucket, ())
        near = facts.location if facts else ""
        return found, cloud.dataset_location("", dataset) or location or near or "US"


async def _interruptible(
    estate: "Estate", scenarios: "tuple[Scenario, ...]", seconds: float, *, keep: bool, quiet: bool
) -> "Report":
    """SIGTERM is like Ctrl-C: the run ends, and what it made is removed."""
    from ingestd.cli.acceptance.run import run

    def tell(line: str) -> None:
        if not quiet:
            errors.print(f"[dim]{escape(line)}[/]")

    tell(f"run {estate.run}; should it be killed: --clean {estate.run}")
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await run(estate, scenarios, seconds=seconds, keep=keep, tell=tell, warn=_warn)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _show(report: "Report") -> None:
    table = Table("", "scenario", "promise", "seen", "s")
    for one in report.verdicts:
        sign = "[green]✓[/]" if one.passed else "[bold red]✗[/]"
        table.add_row(sign, one.name, escape(one.promise), escape(one.seen), f"{one.seconds:.0f}")
    output.print(table)
    if report.passed:
        output.print(f"[green]run {report.run} passed[/]")
    else:
        output.print(f"[bold red]run {report.run} failed[/]; the daemon's log: {report.log}", highlight=False)


def _warn(line: str) -> None:
    errors.print(line, style="bold red", markup=False)
