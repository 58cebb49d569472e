"""Shorthands for tests of rules."""

import asyncio
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from ingestd.cli.json_schemas import SCHEMAS
from ingestd.documents import DocumentError, Problem, native, read_documents, validate
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.lint import lint
from ingestd.rules.lint_dest import ExpressionChecks
from ingestd.rules.parsing import ParsedFile, parse_file
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.rules.source import FolderSource


def spec(text: str, file: str = "r.yaml") -> RuleSpec:
    document = read_documents(textwrap.dedent(text), file)[0]
    loaded = validate(RuleSpec, document, file)
    complaints = complaints_of("rules", document)
    assert not complaints, f"the editor's schema refuses what the loader takes: {complaints}"
    return loaded


@cache
def _schema(subject: str) -> Draft7Validator:
    return Draft7Validator(SCHEMAS[subject]())


def complaints_of(subject: str, document: Any) -> list[str]:
    """What an editor says of a document: it sees values as YAML and JSON have them."""
    found = _schema(subject).iter_errors(native(document))
    return [f"{one.json_path}: {one.message[:200]}" for one in found]


def refused(text: str, file: str = "r.yaml") -> list[str]:
    """The problems of a rule that must not load."""
    try:
        loaded = spec(text, file)
    except DocumentError as error:
        return [str(problem) for problem in error.problems]
    raise AssertionError(f"loaded: {loaded}")


def rule(url: str = "r.yaml", index: int = 0, **fields: Any) -> Rule:
    """A rule from keyword arguments spelled as in files: `When=…, Dest=…`."""
    return Rule.of(RuleSpec.model_validate({"Dest": {"Table": "d.t"}, **fields}), url, index)


def lint_path(
    path: Path, checks: ExpressionChecks | None = None, unknown: UnknownKeys = UnknownKeys.TYPOS
) -> list[Problem]:
    """Lint a folder or one file."""
    return asyncio.run(lint(FolderSource(path), checks, unknown))


async def parsed(
    text: str | bytes, file: str = "r.yaml", unknown: UnknownKeys = UnknownKeys.TYPOS, root: str = ""
) -> ParsedFile:
    """A file of rules that names no other."""

    async def nothing(url: str) -> bytes:
        raise FileNotFoundError(url)

    return await parse_file(file, text.encode() if isinstance(text, str) else text, root, nothing, unknown)
