"""bqtail's configuration files as settings: each key becomes one, or a comment that says why not.

BqTail's and BqDispatch's have the same keys but for a few. They are read as bqtail reads them, in any case; what it
does not know itself is named with a suggestion.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ingestd.documents import DocumentError, LocatedDict, Problem, did_you_mean, native, read_documents
from ingestd.model.objects import ObjectRef
from ingestd.model.quantities import format_duration

PROJECT_VARIABLES = ("GCLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCP_PROJECT")
"""Where bqtail looks for a project that its configuration does not name."""

_LEAST_PAUSE = timedelta(seconds=1)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]*")


class _UnfitError(ValueError):
    """A value that cannot be taken over; the message says why."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _UnfitError("must be text")
    return value


def _folder(value: Any) -> str:
    url = _text(value).rstrip("/")
    try:
        ObjectRef.parse(url)
    except ValueError:
        raise _UnfitError("is no gs:// URL") from None
    return url


def _own_folder(value: Any) -> str:
    return f"{_folder(value)}/ingestd"


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _UnfitError("must be a whole number")
    return value or None  # bqtail takes 0 for not given


def _pause(value: Any) -> str | None:
    milliseconds = _count(value)
    if milliseconds is None:
        return None
    return format_duration(max(_LEAST_PAUSE, timedelta(milliseconds=milliseconds)))


def _list(value: Any) -> list[Any] | None:
    if not isinstance(value, list):
        raise _UnfitError("must be a list")
    return value or None


@dataclass(frozen=True, slots=True)
class Kept:
    """A key that has a setting. `note` is put beside it."""

    setting: str
    read: Callable[[Any], Any] = _text
    note: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A key without a setting, and why. `loud`: what bqtail did by it does not happen here any more."""

    why: str
    loud: Callable[[Any], bool] = lambda _: False


_BESIDE = "a folder of its own: bqtail may go on beside it"
_TRIGGERED = "nothing is triggered by moving objects into a bucket"
_TABLES = "the load-state table has it (load_state.table, docs/ledger.md)"

KEYS: Mapping[str, Kept | Left] = {
    "ProjectID": Kept("project"),
    "RulesURL": Kept("rules.url"),
    "CheckInMs": Kept("rules.check_every", _pause),
    "JournalURL": Kept("journal_url", _own_folder, _BESIDE),
    "ErrorURL": Kept("error_url", _folder),
    "AsyncTaskURL": Kept("defer_task_url", _own_folder, _BESIDE),
    "DeferTaskURL": Kept("defer_task_url", _own_folder, _BESIDE),
    "SyncTaskURL": Kept("batch_url", _own_folder, _BESIDE),
    "CorruptedFileURL": Kept("corrupted_file_url", _folder),
    "InvalidSchemaURL": Kept("invalid_schema_url", _folder),
    "MaxRetries": Kept("jobs.max_attempts", _count),
    "MaxConcurrentSQL": Kept("max_concurrent_sql", _count, "jobs in flight per replica, not finished ones"),
    "MaxConcurrentLoad": Kept("max_concurrent_load", _count, "jobs in flight per replica, not finished ones"),
    "MaxConcurrentJobs": Kept("max_concurrent_load", _count, "what bqtail's documentation means; its code ignores it"),
    "Routes": Kept("routes", _list),
    "Rules": Left("put each of them into a file of its own under rules.url", bool),
    "Disabled": Left("write Disabled: true into the rules; the daemon has no switch for all", bool),
    "Async": Left("each rule's own Async counts; rows and actions are the same either way"),
    "SlackCredentials": Left("mount the token and set actions.slack_token_file: KMS is not asked", bool),
    "TriggerBucket": Left("let the bucket notify the topic of subscriptions.notifications (docs/deployment.md)"),
    "Region": Left("jobs run where their datasets are, and KMS is not asked"),
    "ActiveLoadProcessURL": Left("records of running batches are in Running/ under journal_url"),
    "DoneLoadProcessURL": Left("records of ended batches are in Done/ under journal_url"),
    "LoadProcessPrefix": Left(_TRIGGERED),
    "PostJobPrefix": Left(_TRIGGERED),
    "BatchPrefix": Left(_TRIGGERED),
    "MaxTriggerDelayMs": Left(_TRIGGERED),
    "BqJobInfoPath": Left(_TABLES),
    "BqBatchInfoPath": Left(_TABLES),
    "TimeToLiveInMin": Left("a daemon does not end after minutes"),
    "RunOnce": Left("a daemon keeps its clients"),
    "URL": Left("bqtail sets it itself"),
}
"""Every key of bqtail's two configurations."""


@dataclass(slots=True)
class Converted:
    """Settings by their dotted names, what stands beside each, and what has no setting."""

    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def nested(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in self.settings.items():
            section, _, key = name.rpartition(".")
            (found.setdefault(section, {}) if section else found)[key] = value
        return found

    def yaml(self, made_from: str) -> str:
        """The settings file."""
        return "\n".join([f"# Made from {made_from} by `ingestd settings --from-bqtail`.", *self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        if "project" not in self.settings:
            yield "# project: which one? Write it here, or set INGESTD_PROJECT."
        section = ""
        for name, value in sorted(self.settings.items(), key=lambda one: ("." in one[0], one[0].partition(".")[0])):
            head, _, key = name.rpartition(".")
            if head and head != section:
                yield f"{head}:"
            section, indent = head, "  " * bool(head)
            note = f"  # {self.notes[name]}" if name in self.notes else ""
            yield f"{indent}{key}: {_written(value)}{note}"
        if self.left:
            yield "\n# Without a setting:"
            yield from (f"# {line}" for line in self.left)


def convert(files: Sequence[tuple[str, bytes]], environ: Mapping[str, str]) -> Converted:
    """Name and content of each file as settings; raises DocumentError. Of two files that differ, the first counts."""
    found = Converted()
    problems: list[Problem] = []
    for name, data in files:
        _add(found, name, _mapping(name, data), problems)
    if problems:
        raise DocumentError(sorted(problems))
    project = next((environ[name] for name in PROJECT_VARIABLES if environ.get(name)), "")
    if project and "project" not in found.settings:
        found.settings["project"] = project
    journal = found.settings.get("journal_url", "").removesuffix("/ingestd")
    if journal and "invalid_schema_url" not in found.settings:
        found.settings["invalid_schema_url"] = f"{journal}/invalid_schema"
        found.notes["invalid_schema_url"] = "bqtail's default"
    return found


def _mapping(name: str, data: bytes) -> LocatedDict:
    documents = read_documents(data, name)
    if len(documents) != 1 or not isinstance(documents[0], LocatedDict):
        raise DocumentError([Problem(name, 1, 1, "", "bqtail's configuration is one mapping of keys to values")])
    return documents[0]


def _add(found: Converted, file: str, document: LocatedDict, problems: list[Problem]) -> None:
    spellings = {key.lower(): key for key in KEYS}
    for written, located in document.items():
        value = native(located)
        key = spellings.get(written.lower())
        place = document.key_places[written]
        if value is None:
            continue
        if key is None:
            message = f"{written} is no key of bqtail's, which passes over it{did_you_mean(written, KEYS)}"
            found.left.append(message)
            found.warnings.append(f"{place}: {message}")
            continue
        meaning = KEYS[key]
        if key == "Rules" and isinstance(value, list) and _are_routes(value):
            meaning = Kept("routes", _list)
        if isinstance(meaning, Left):
            line = f"{key}: {meaning.why}"
            found.left += [line] * (line not in found.left)
            if meaning.loud(value) and line not in found.warnings:
                found.warnings.append(line)
            continue
        try:
            setting = meaning.read(value)
        except _UnfitError as error:
            problems.append(Problem.at(place, written, str(error)))
            continue
        if setting is not None:
            _set(found, meaning, setting, f"{file}: {key}")


def _set(found: Converted, meaning: Kept, value: Any, origin: str) -> None:
    kept = found.settings.setdefault(meaning.setting, value)
    if kept == value:
        if meaning.note:
            found.notes[meaning.setting] = meaning.note
        return
    where = "; copy its rules and routes there" if meaning.setting == "rules.url" else ""
    message = f"{origin} is {_written(value)}, but {meaning.setting} is {_written(kept)} already{where}"
    found.left.append(message)
    if meaning.setting == "rules.url":
        found.warnings.append(message)


def _are_routes(rules: list[Any]) -> bool:
    """BqDispatch's rules are routes: they follow jobs and have no destination."""
    return bool(rules) and all(isinstance(one, dict) and "dest" not in {key.lower() for key in one} for one in rules)


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return text if _PLAIN.fullmatch(text) else json.dumps(value, ensure_ascii=False)
