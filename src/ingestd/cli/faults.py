"""`ingestd faults`: rehearse bad days on a running local cloud."""

from typing import Annotated, Any

import typer
from rich.table import Table

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.terminal import Json, output, print_json

app = typer.Typer(
    help="Rehearse failures on a running local cloud: errors, delays, lost answers, repeated messages.",
    no_args_is_help=True,
)
_COLUMNS = ("service", "method", "resource", "kind", "status", "seconds", "times")


@app.command("list")
def show(state: where.State = None, as_json: Json = False) -> None:
    """Show the faults in force."""
    faults = _call("GET", state)
    if as_json:
        print_json(faults)
    else:
        _print(faults)


@app.command()
def add(
    service: Annotated[str, typer.Argument(help="storage, pubsub, bigquery or *")],
    method: Annotated[str, typer.Argument(help="Shell pattern of the method, e.g. 'objects.insert' or 'jobs.*'")],
    kind: Annotated[str, typer.Argument(help="fail, delay, drop_response, duplicate or withhold")],
    resource: Annotated[str, typer.Option(help="Shell pattern of what it is done to.")] = "*",
    status: Annotated[int, typer.Option(help="HTTP status of a failure.")] = 503,
    reason: Annotated[str, typer.Option(help="Google's reason of a failure.")] = "backendError",
    seconds: Annotated[float, typer.Option(help="Length of a delay.")] = 0.0,
    times: Annotated[int | None, typer.Option(help="How often. [dim]Default: until cleared.[/]")] = None,
    state: where.State = None,
) -> None:
    """Add a fault, e.g. [cyan]ingestd faults add bigquery jobs.insert fail --status 503 --times 3[/]"""
    fault = {
        "service": service,
        "method": method,
        "kind": kind,
        "resource": resource,
        "status": status,
        "reason": reason,
        "seconds": seconds,
        "times": times,
    }
    _print(_call("POST", state, fault))


@app.command()
def clear(state: where.State = None) -> None:
    """Remove every fault."""
    _call("DELETE", state)
    output.print("no faults")


def _call(method: str, state: Any, body: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    import httpx

    url = f"{where.endpoints(state).storage}/_ingestd/faults"
    answer = httpx.request(method, url, json=body, timeout=10, trust_env=False)
    if answer.is_error:
        raise CommandError(answer.json()["error"]["message"])
    faults: list[dict[str, Any]] = answer.json()["faults"]
    return faults


def _print(faults: list[dict[str, Any]]) -> None:
    if not faults:
        output.print("no faults")
        return
    table = Table(*_COLUMNS)
    for fault in faults:
        table.add_row(*("" if fault[name] is None else str(fault[name]) for name in _COLUMNS))
    output.print(table)
