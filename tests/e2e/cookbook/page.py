"""docs/cookbook.md as recipes: what it has a reader save, run and see.

`yaml` blocks are files, named by their first line. `sh` blocks are run; a `text` block below one has lines
that it prints. `sql` blocks are run; a table below one is what it answers. Both may take until the files are in.
"""

import re
from dataclasses import dataclass

from tests.support.places import ROOT

PAGE = ROOT / "docs" / "cookbook.md"
_PART = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|^(?P<table>(?:\|[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str


@dataclass(slots=True)
class Shell:
    script: str
    prints: list[str] | None = None


@dataclass(slots=True)
class Query:
    sql: str
    rows: list[list[str]] | None = None  # the header first


@dataclass(frozen=True, slots=True)
class Recipe:
    title: str
    steps: tuple[File | Shell | Query, ...]

    @property
    def files(self) -> list[File]:
        return [step for step in self.steps if isinstance(step, File)]

    @property
    def windowed(self) -> bool:
        return any(re.search(r"^Batch:", file.text, re.MULTILINE) for file in self.files)


def read_page() -> tuple[Recipe, list[Recipe]]:
    """What comes before the first recipe, and the recipes."""
    first, *others = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return _recipe("", first), [_recipe(*text.split("\n", 1)) for text in others]


def _recipe(title: str, text: str) -> Recipe:
    steps: list[File | Shell | Query] = []
    for part in _PART.finditer(text):
        content = part["text"] or part["table"]
        match part["kind"], steps[-1] if steps else None:
            case "yaml", _:
                steps.append(File(content.partition("\n")[0].removeprefix("# ").partition(":")[0], content))
            case "sh", _:
                steps.append(Shell(content))
            case "sql", _:
                steps.append(Query(content))
            case "text", Shell() as shell:
                shell.prints = content.splitlines()
            case None, Query() as query:
                header, _, *lines = content.splitlines()
                query.rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines)]
            case kind, _:
                raise AssertionError(f"{title}: nobody runs this {kind or 'table'}:\n{content}")
    return Recipe(title.strip(), tuple(steps))
