"""The rule that `ingestd load` runs: made of its flags as bqtail's CLI makes one, or read from a file."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ingestd.cli.errors import CommandError

if TYPE_CHECKING:
    from ingestd.rules.source import RuleSource

UPLOADS = "/_adhoc_/"  # where copies of local files lie


@dataclass(frozen=True, slots=True)
class RuleFlags:
    """The flags that say what the rule says."""

    dest: str
    partition: bool = False
    override: bool = False
    template: str = ""
    transient_template: str = ""
    unique: tuple[str, ...] = ()
    prefix: str = ""
    suffix: str = ""
    pattern: str = ""
    source_format: str = ""
    autodetect: bool = False
    window: timedelta | None = None
    individually: bool = False
    delete: bool = False

    def rule(self, source: str) -> dict[str, Any]:
        """As it would be written in a file."""
        from ingestd.rules.schema import LONGEST_WINDOW

        if not self.dest:
            raise CommandError("into which table? Give --dest dataset.table, or a rule with --rule FILE")
        if self.individually and self.window:
            raise CommandError("--individually and --window exclude each other")
        remote = source.startswith("gs://")
        when = {
            "Prefix": self.prefix or (_folder(source) if remote else UPLOADS),
            "Suffix": self.suffix,
            "Filter": self.pattern,
        }
        rule: dict[str, Any] = {"When": _given(when), "Dest": self._dest()}
        if not self.individually:
            # Without one, a window that only its last file closes, and that has files of all times.
            seconds = int(self.window.total_seconds()) if self.window else LONGEST_WINDOW
            rule["Batch"] = {"Window": {"DurationInSec": max(1, seconds)}, "MultiPath": True}
        if self.delete or not remote:  # a local file's copy has done its duty; what lay in a bucket before stays
            rule["OnSuccess"] = [{"Action": "delete"}]
        return rule

    def _dest(self) -> dict[str, Any]:
        transient = {"Dataset": "temp", "Template": self.transient_template} if self.transient_template else None
        return _given(
            {
                "Table": self.dest,
                "Partition": "$Date" if self.partition else None,
                "Override": self.override,
                "Schema": _given({"Template": self.template, "Autodetect": self.autodetect}),
                "Transient": transient,
                "UniqueColumns": list(self.unique),
                "Pattern": self.pattern,
                "SourceFormat": self.source_format,
            }
        )


async def written_rule(path: str, source: "RuleSource") -> dict[str, Any]:
    """The one rule of a file. It runs here and synchronously, whatever it says: somebody asked, and waits for it."""
    from ingestd.documents import read_documents
    from ingestd.documents.located import native
    from ingestd.model.errors import NotFound
    from ingestd.rules.parsing import parse_file
    from ingestd.rules.rule import plain

    try:
        data = await source.read(path)
    except (NotFound, FileNotFoundError, IsADirectoryError):
        raise CommandError(f"there is no rule file {path}") from None
    documents = [native(one) for one in read_documents(data, path)]
    rules = [one for document in documents for one in (document if isinstance(document, list) else [document])]
    if len(rules) != 1 or not isinstance(rules[0], dict):
        raise CommandError(f"{path} must hold exactly one rule, not {len(rules)}")
    # What is wrong with it is told by its own name and lines; the engine gets a copy, with what lies beside it.
    root = path.rpartition("/")[0]
    parsed = await parse_file(path, data, f"{root}/" if root else "", source.read)
    rule = plain(parsed.rules[0].rule.spec) if parsed.references else rules[0]
    return {key: value for key, value in rule.items() if key.lower() not in ("async", "disabled")}


def _given(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value}


def _folder(url: str) -> str:
    from ingestd.rules.matching import path_of

    return path_of(url.removeprefix("gs://").partition("/")[2])
