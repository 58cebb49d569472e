"""`ingestd schema`: JSON Schemas for editors, which then complete keys and mark mistakes while one writes."""

from enum import StrEnum
from typing import Annotated

import typer


class Subject(StrEnum):
    RULES = "rules"
    SETTINGS = "settings"
    LOAD = "load"


def schema(
    subject: Annotated[
        Subject, typer.Argument(help="Rule files, the daemon's settings, or load.json of a _config/ folder.")
    ],
) -> None:
    """Print the JSON Schema of rules, settings or _config/load.json, for editors.

    A file's first line [cyan]# yaml-language-server: $schema=rules.json[/] tells many editors to use it.
    """
    typer.echo(written(subject), nl=False)


def written(subject: Subject) -> str:
    import json

    from ingestd.cli.json_schemas import SCHEMAS

    return json.dumps(SCHEMAS[subject](), indent=1, ensure_ascii=False) + "\n"
