"""Which files a failed load was refused for, and where in them: read off BigQuery's error messages.

BigQuery names files in `location`, at the end of a message (`File: gs://…`), or not at all. Row, byte position and
column are found in the texts where they stand.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ingestd.model.jobs import JobError, JobState

_FILE = re.compile(r"(?:File: |URI |)((?:gs://|/bigstore/)\S.*)$")
_ROWS = re.compile(r"\bRows: (\d+)")
_ROW = re.compile(r"\b(?:[Rr]ow|[Ll]ine)(?: number)?:? (\d+)")
_POSITION = re.compile(r"(?:starting at (?:position|location):? |at byte offset )(\d+)")
_COLUMN = (
    re.compile(r"No such field: ([^\s;]+?)\.?(?:\s|$)"),
    re.compile(r"[Mm]issing required field: ([^\s;]+?)\.?(?:\s|$)"),
    re.compile(r"\bField: ([^\s;]+?)\.?(?:[;\s]|$)"),
    re.compile(r"\bfor field ([^\s;]+)"),
    re.compile(r"[Cc]olumn '([^']+)'"),
)
_CONTENT = ("reading data", "too many errors", "provided schema", "parse", "parsing", "gzip", "corrupt", "splittable")


@dataclass(frozen=True, slots=True)
class Blame:
    """What BigQuery said about one file."""

    url: str  # empty: it named none
    reason: str
    message: str
    row: int | None = None
    position: int | None = None
    column: str = ""

    @property
    def missing(self) -> bool:
        return self.reason == "notFound"

    @property
    def schema(self) -> bool:
        """Whether the file does not fit the table, rather than being broken in itself."""
        text = self.message.lower()
        return "field" in text or "schema" in text


def blames(job: JobState, urls: Iterable[str]) -> dict[str, Blame]:
    """The files of a failed load that its errors name, each with the most telling error about it."""
    known = set(urls)
    found: dict[str, Blame] = {}
    row: int | None = None
    for error in (*job.errors, *((job.error,) if job.error else ())):
        url = _named(error, known)
        if not url:
            row = _number(_ROWS, error.message) or row  # a summary stands before the errors it sums up
            continue
        blame = describe(error, url)
        earlier = found.get(url)
        if earlier is None or _telling(blame) > _telling(earlier):
            found[url] = replace(blame, row=blame.row or (earlier.row if earlier else None) or row)
        row = None
    return found


def describe(error: JobError, url: str = "") -> Blame:
    message = error.message
    column = next((match.group(1) for pattern in _COLUMN if (match := pattern.search(message))), "")
    return Blame(
        url=url,
        reason=error.reason,
        message=message,
        row=_number(_ROW, message) or _number(_ROWS, message),
        position=_number(_POSITION, message),
        column=column,
    )


def unnamed(job: JobState) -> Blame:
    """What a failed load that names no file was refused for."""
    errors = [error for error in (*job.errors, *((job.error,) if job.error else ())) if error.message]
    return max((describe(error) for error in errors), key=_telling, default=Blame("", "", "no reason given"))


def about_content(job: JobState) -> bool:
    """Whether what the load read was the trouble, rather than how it was asked.

    A table without schema or a wrong option refuses every file alike: searching for the bad one would be in vain.
    """
    texts = [error.message.lower() for error in (*job.errors, *((job.error,) if job.error else ()))]
    return any(word in text for text in texts for word in _CONTENT)


def _named(error: JobError, known: set[str]) -> str:
    """The file an error names; object names may hold blanks and dots, so only files of the load count."""
    if error.location in known:
        return error.location
    if (match := _FILE.search(error.message)) is None:
        return ""
    text = match.group(1)
    text = f"gs://{text.removeprefix('/bigstore/')}" if text.startswith("/bigstore/") else text
    while text:
        for candidate in (text, text.rstrip(".,;:'\")")):
            if candidate in known:
                return candidate
        text, blank, _ = text.rpartition(" ")
        if not blank:
            return ""
    return ""


def _telling(blame: Blame) -> int:
    """Summaries say the least; a column says more than a row."""
    summary = "too many errors" in blame.message or "errors[]" in blame.message
    return (0 if summary else 4) + (2 if blame.column else 0) + (1 if blame.position is not None else 0)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match.group(1)) if match else None
