"""`ingestd settings`: everything the daemon can be told, from the model itself, so that it is never out of date."""

import asyncio
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.terminal import Json, errors, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel

_INTRODUCTION = """\
# Settings

`ingestd run --config FILE` reads a YAML file; each setting can also come from the environment, which wins: the variable
of `section.key` is `INGESTD_SECTION__KEY`, and no file is needed. Unknown keys are refused; what Kubernetes injects for
a Service called `ingestd` (`INGESTD_SERVICE_HOST` and so on) is ignored. Durations are written `90s`, `5m`, `1h30m`,
sizes `64MiB`. This page is what `ingestd settings` prints; `ingestd settings --from-bqtail FILE` prints bqtail's
configuration as settings ([coming from bqtail](migration-from-bqtail.md#configuration)).
"""


def settings(
    from_bqtail: Annotated[
        list[str] | None,
        typer.Option(
            "--from-bqtail",
            metavar="FILE",
            help="Print settings made from bqtail's configuration instead: a file, gs://…, or - for standard input; "
            "BqTail's and BqDispatch's together when given twice.",
        ),
    ] = None,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """Print every setting with its default and its reason, as Markdown."""
    if from_bqtail:
        _convert(from_bqtail, state, as_json=as_json)
    elif as_json:
        print_json(_documents())
    else:
        typer.echo(reference(), nl=False)


def _convert(files: list[str], state: Path | None, *, as_json: bool) -> None:
    """Settings on standard output, what needs a person on standard error."""
    from ingestd.cli.bqtail_settings import convert

    found = convert([(name, _content(name, state)) for name in files], os.environ)
    if as_json:
        print_json({"settings": found.nested(), "notes": found.notes, "left": found.left})
    else:
        typer.echo(found.yaml(", ".join(files)), nl=False)
    for line in found.warnings:
        errors.print(f"[yellow]note:[/] {escape(line)}")


def _content(name: str, state: Path | None) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    return asyncio.run(_object(where.enter(state), name)) if name.startswith("gs://") else Path(name).read_bytes()


async def _object(project: str, url: str) -> bytes:
    from ingestd.gcp.connect import connect
    from ingestd.model.objects import ObjectRef

    async with connect(project) as clients:
        data, _ = await clients.store.read(ObjectRef.parse(url))
        return data


def _documents() -> list[dict[str, Any]]:
    from ingestd.settings import Settings

    found = []
    for name, field in Settings.model_fields.items():
        section = _section(field.annotation)
        inner = section.model_fields.items() if section else [("", field)]
        for key, one in inner:
            default = None if one.is_required() else _shown(one.get_default(call_default_factory=True))
            setting = {"setting": f"{name}.{key}".strip("."), "default": default, "required": one.is_required()}
            found.append({**setting, "description": one.description or ""})
    return found


def reference() -> str:
    from ingestd.settings import Settings

    lines = [_INTRODUCTION]
    top = [(name, field) for name, field in Settings.model_fields.items() if _section(field.annotation) is None]
    lines += _table("", top)
    for name, field in Settings.model_fields.items():
        if section := _section(field.annotation):
            lines += [f"\n## `{name}`\n", *_table(f"{name}.", list(section.model_fields.items()))]
    return "\n".join(lines) + "\n"


def _section(annotation: Any) -> "type[BaseModel] | None":
    from pydantic import BaseModel

    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _table(prefix: str, fields: list[tuple[str, Any]]) -> Iterator[str]:
    yield "| Setting | Default | |"
    yield "| --- | --- | --- |"
    for name, field in fields:
        default = "*required*" if field.is_required() else f"`{_shown(field.default)}`"
        yield f"| `{prefix}{name}` | {default} | {field.description or ''} |"


def _shown(value: Any) -> str:
    """A default as it would be written in the file."""
    from ingestd.model.quantities import format_duration, format_size

    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "none"
    if isinstance(value, int) and value >= 1024**2:
        return format_size(value)
    if isinstance(value, tuple):
        return "[]" if not value else ", ".join(map(str, value))
    return str(value) if value != "" else '""'
