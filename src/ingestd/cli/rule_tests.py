"""Unit tests of rules, written in YAML: given these paths, expect this rule, this table, this window.

They ask the code that routes files and names their tables, so a test that passes says what the daemon will do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from ingestd.batch.load_config import refuse_misread
from ingestd.cli.errors import CommandError
from ingestd.collect.windows.model import WindowId, window_of
from ingestd.documents import Document, Many, Place, locate, read_documents
from ingestd.documents.models import AnyValue, validate
from ingestd.model.errors import BadInput
from ingestd.model.objects import EPOCH, LATEST, FileVersion, Generation, ObjectRef
from ingestd.model.quantities import Duration, format_duration
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.loading import RuleBook
from ingestd.rules.matching import Ambiguous, Disabled, Match, Routing
from ingestd.rules.rule import Rule

_SUFFIXES = (".yaml", ".yml", ".json")
_DEFAULT_TIME = datetime(2024, 1, 1, tzinfo=UTC)
_NOBODY, _DISABLED, _AMBIGUOUS = "none", "disabled", "ambiguous"


class Expectation(Document):
    """What is to be true of every given file; what is left out is not looked at."""

    rule: str | None = None
    table: str | None = None
    partition: str | None = None
    window: str | None = None
    due: datetime | None = None
    together: bool | None = None
    refused: str | None = None
    params: dict[str, AnyValue] = Field(default_factory=dict)
    async_: bool | None = Field(None, alias="Async")
    on_success: Many[str] | None = None
    on_failure: Many[str] | None = None


class RuleTest(Document):
    name: str = ""
    given: Many[str] = Field(min_length=1)
    at: datetime | None = None
    every: Duration | None = None
    expect: Expectation


class RuleTests(Document):
    """One file of tests."""

    rules: str | None = None
    project: str = "test-project"
    tests: Many[RuleTest] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test, and what did not hold."""

    name: str
    place: Place
    failures: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "place": str(self.place), "passed": self.passed, "failures": list(self.failures)}


@dataclass(frozen=True, slots=True)
class RuleTestFile:
    """A file of tests with the places they stand at."""

    path: Path
    content: RuleTests
    places: tuple[Place, ...]


@dataclass(slots=True)
class _File:
    """A given path and what becomes of it."""

    file: FileVersion
    rule: Rule | None = None
    verdict: str = ""
    table: str = ""
    partition: str = ""
    window: WindowId | None = None
    params: dict[str, Any] = field(default_factory=dict)
    refused: str = ""


def find_test_files(paths: Sequence[Path]) -> list[RuleTestFile]:
    """Every test file named, or in a folder named; a mistake in one is an error with its line."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CommandError(f"there is no file or folder {path}")
        inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in _SUFFIXES and one.is_file())
        found += [path] if path.is_file() else inside
    if not found:
        raise CommandError(f"no test files (*.yaml) in {', '.join(map(str, paths))}")
    return [_read(path) for path in found]


def _read(path: Path) -> RuleTestFile:
    documents = read_documents(path.read_bytes(), str(path))
    if len(documents) != 1:
        raise CommandError(f"{path}: one document with Tests is expected, not {len(documents)}")
    content = validate(RuleTests, documents[0], str(path))
    places = tuple(
        locate(documents[0], ("Tests", index), Place(str(path), 1, 1))[0] for index in range(len(content.tests))
    )
    return RuleTestFile(path, content, places)


def run_tests(file: RuleTestFile, book: RuleBook) -> Iterator[Outcome]:
    for test, place in zip(file.content.tests, file.places, strict=True):
        name = test.name or f"{test.given[0]}" + (f" and {len(test.given) - 1} more" if len(test.given) > 1 else "")
        yield Outcome(name, place, tuple(_failures(test, book, file.content.project)))


def _failures(test: RuleTest, book: RuleBook, project: str) -> Iterator[str]:
    files = [_look_at(path, _moment(test, number), book, project) for number, path in enumerate(test.given)]
    for one in files:
        for what, wanted, got in _differences(test.expect, one):
            yield f"{one.file.ref.url}: expected {what} {wanted}, got {got}"
    if test.expect.together is not None:
        yield from _together(test.expect.together, files)


def _moment(test: RuleTest, number: int) -> datetime:
    at = test.at or _DEFAULT_TIME
    try:
        moment = (at if at.tzinfo else at.replace(tzinfo=UTC)) + (test.every or timedelta()) * number
    except OverflowError:
        moment = LATEST
    if not EPOCH <= moment < LATEST:
        raise CommandError(f"no file is uploaded before 1970 or after {LATEST:%Y}: see At and Every of {test.given[0]}")
    return moment


def _look_at(path: str, moment: datetime, book: RuleBook, project: str) -> _File:
    try:
        ref = ObjectRef.parse(path) if path.startswith("gs://") else ObjectRef("bucket", path.lstrip("/"))
    except ValueError as error:
        raise CommandError(f"Given: {error}") from None
    one = _File(FileVersion(ref, Generation(int(moment.timestamp() * 1_000_000)), 1, moment))
    routing = book.route(ref.name)
    one.verdict = _verdict(routing)
    if not isinstance(routing, Match):
        return one
    one.rule = routing.rule
    try:
        refuse_misread(ref.url)
        destination = expand_destination(routing.rule, one.file, {"EventID": one.file.event_id, "ProjectID": project})
    except (DestinationError, BadInput) as error:
        one.refused = str(error)
        return one
    one.table, one.partition = str(destination.table), destination.partition or ""
    one.params = dict(destination.params)
    if batch := routing.rule.spec.batch:
        seconds = int(batch.duration.total_seconds())
        one.window = window_of(routing.rule, one.file, str(destination.target), seconds)
    return one


def _verdict(routing: Routing) -> str:
    if isinstance(routing, Match):
        return routing.rule.name
    if isinstance(routing, Disabled):
        return f"{_DISABLED} ({routing.rule.name})"
    if isinstance(routing, Ambiguous):
        return f"{_AMBIGUOUS} ({', '.join(rule.name for rule in routing.rules)})"
    return _NOBODY


def _differences(expect: Expectation, one: _File) -> Iterator[tuple[str, str, str]]:
    if expect.rule is not None and not _same_rule(expect.rule, one.verdict):
        yield "rule", expect.rule, one.verdict
        return
    if expect.refused is not None:
        if not one.refused or expect.refused.lower() not in one.refused.lower():
            yield "a refusal that says", repr(expect.refused), one.refused or f"table {one.table or 'none'}"
        return
    if one.refused:
        yield "a table", expect.table or "", f"a refusal: {one.refused}"
        return
    yield from _different("table", expect.table, one.table or _NOBODY, _plain_table)
    yield from _different("partition", expect.partition, one.partition or _NOBODY)
    yield from _window_differences(expect, one.window)
    for name, wanted in expect.params.items():
        yield from _different(f"parameter {name}", wanted, one.params.get(name, "nothing"))
    if one.rule is None:
        return
    spec = one.rule.spec
    yield from _different("Async", expect.async_, spec.async_)
    for what, names, actions in (
        ("OnSuccess", expect.on_success, spec.on_success),
        ("OnFailure", expect.on_failure, spec.on_failure),
    ):
        yield from _different(what, None if names is None else list(names), [action.name for action in actions])


def _window_differences(expect: Expectation, window: WindowId | None) -> Iterator[tuple[str, str, str]]:
    got = format_duration(timedelta(seconds=window.seconds)) if window else _NOBODY
    if expect.window is not None and _length(expect.window) != _length(got):
        yield "window", expect.window, got
    if expect.due is not None:
        wanted = expect.due if expect.due.tzinfo else expect.due.replace(tzinfo=UTC)
        yield from _different("a window due", wanted, window.due if window else _NOBODY)


def _length(text: str) -> timedelta | str:
    from ingestd.model.quantities import parse_duration

    if text.lower() in (_NOBODY, "no", "false"):
        return _NOBODY
    try:
        return parse_duration(text)
    except ValueError:
        raise CommandError(f"a window is a duration (5m, 1h) or none, not {text!r}") from None


def _different(what: str, wanted: Any, got: Any, normal: Any = str) -> Iterator[tuple[str, str, str]]:
    if wanted is not None and normal(wanted) != normal(got):
        yield what, str(wanted), str(got)


def _same_rule(wanted: str, verdict: str) -> bool:
    """A rule by its name, with or without its folder and extension; or none, disabled, ambiguous."""
    return verdict == wanted or verdict.startswith(f"{wanted} (") or verdict.rpartition("/")[2] == wanted


def _plain_table(text: Any) -> str:
    return str(text).replace(":", ".").replace("`", "")


def _together(wanted: bool, files: Sequence[_File]) -> Iterator[str]:
    windows = {one.window for one in files}
    together = len(windows) == 1 and None not in windows
    if together == wanted:
        return
    if wanted and None in windows:
        yield "expected one window for all files, but files load on their own"
    elif wanted:
        names = ", ".join(sorted(one.name for one in windows if one is not None))
        yield f"expected one window for all files, got {len(windows)}: {names}"
    else:
        yield "expected different windows, but all files share one"
