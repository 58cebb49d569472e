"""What the `_config/` folders above a batch say, merged: decisions only, no I/O.

`load.json` files are merged from the bucket's root down to the batch's own directory, objects key by key, and the
closest wins. Of `external.json` and the transformation SQL the closest counts alone. `ORDERME` counts wherever it lies.
Whatever is wrong is `BadConfig`, which names the file: the batch waits until it is mended.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingestd.collect.success.destination import NoDestination, Overrides, reference_parts
from ingestd.documents import DocumentError, LocatedDict, Place, native, read_documents, validate
from ingestd.model.errors import Fatal
from ingestd.model.objects import Generation, ObjectRef
from ingestd.rules.load_options import LoadOptions

LARGEST = 1 << 20  # bytes of one file: BigQuery's largest schema, 10,000 columns, fits
LARGEST_TOGETHER = 8 << 20  # of all that count for one batch: there may be hundreds of folders above it

CONFIG = "_config"
LOAD, EXTERNAL, ORDERME = "load.json", "external.json", "ORDERME"
SPARK_SQL = "spark_transform.sql"

DEFAULT = "default"
_DEFAULTS: Mapping[str, Any] = {"writeDisposition": "WRITE_APPEND"}
_EXTERNAL_DEFAULT: Mapping[str, Any] = {"sourceFormat": "PARQUET"}
_OURS = frozenset({"destinationTable", "destinationRegex", "dataSourceName", "labels", "sourceUris"})
# A string, or a comma that nothing follows: people write those, the tool's own documentation does. A string need
# not end: whatever is read once is never read again, however the text goes on.
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]+|\\.)*"?)|,(?=\s*+[}\]])', re.DOTALL)
_MOST_SHOWN, _LONGEST_PROBLEM = 20, 2_000


class BadConfig(Fatal):
    """A `_config/` file that cannot be used; mending it is all that is needed."""


@dataclass(frozen=True, slots=True, order=True)
class ConfigFile:
    ref: ObjectRef
    generation: Generation
    size: int = 0

    @property
    def name(self) -> str:
        return self.ref.name.rpartition("/")[2]

    @property
    def key(self) -> str:
        return f"{self.ref.url}#{self.generation}"


Levels = Sequence[Sequence[ConfigFile]]
"""The files of each `_config/`, from the root to the batch's own directory."""


@dataclass(frozen=True, slots=True)
class Transform:
    """Rows come in by a query over `temp_ext`."""

    sql: str
    source: str
    spark: bool = False
    external: Mapping[str, Any] = field(default_factory=dict)
    described: bool = False  # whether an external.json says how the files are read


@dataclass(frozen=True, slots=True)
class Configured:
    load: Mapping[str, Any]  # merged, as written; `load_options` checks it
    overrides: Overrides = field(default_factory=Overrides)
    labels: Mapping[str, str] = field(default_factory=dict)
    source_name: str = ""
    transform: Transform | None = None
    ordered: bool = False
    files: tuple[str, ...] = ()  # what it was made of
    origins: Mapping[str, str] = field(default_factory=dict)  # key of `load` → the file that has the last word on it
    traced: Mapping[str, str] = field(default_factory=dict)  # the same for all keys; `a.b` where several files say `a`
    size: int = 0  # bytes of all these files


def folders(name: str, root: str = "") -> list[str]:
    """The folders whose `_config/` counts for this object, from the root down, each with its slash at the end."""
    path = name.removeprefix(root)
    parts = path.split("/")[:-1]
    return [root + "".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts) + 1)]


def wanted(levels: Levels) -> list[ConfigFile]:
    """The files whose content matters."""
    chosen = [file for level in levels for file in level if file.name == LOAD and file.size]
    if (external := _closest(levels, lambda name: name == EXTERNAL)) is not None:
        chosen.append(external)
    return [*chosen, *_closest_sql(levels)]


def refuse_large(files: Sequence[ConfigFile]) -> None:
    """Whoever may upload may write these files: they are refused by their size before they are read."""
    for file in files:
        if file.size > LARGEST:
            raise BadConfig(f"{file.ref.url}: {file.size} bytes, and at most {LARGEST} are read: make it smaller")
    if (together := sum(file.size for file in files)) > LARGEST_TOGETHER:
        largest = max(files, key=lambda file: file.size)
        raise BadConfig(
            f"{largest.ref.url} and the other _config/ files above the batch have {together} bytes, and at most "
            f"{LARGEST_TOGETHER} are read: make them smaller"
        )


def ordered(levels: Levels) -> bool:
    return any(file.name == ORDERME for level in levels for file in level)


def configured(levels: Levels, contents: Mapping[ConfigFile, bytes]) -> Configured:
    """What the files say together; raises `BadConfig`."""
    documents = [
        (file.ref.url, read_object(contents[file], file.ref.url)) for file in wanted(levels) if file.name == LOAD
    ]
    merged, origins = merge(documents)
    regex = merged.get("destinationRegex") or ""
    try:
        table = reference_parts(merged["destinationTable"]) if merged.get("destinationTable") else {}
    except NoDestination as error:
        raise BadConfig(f"{origins['destinationTable']}: {error}") from None
    for key in ("destinationRegex", "dataSourceName"):
        if not isinstance(merged.get(key) or "", str):
            raise BadConfig(f"{origins[key]}: {key} has to be text")
    labels = merged.get("labels") or {}
    if not isinstance(labels, dict):
        raise BadConfig(f"{origins['labels']}: labels have to be an object")
    return Configured(
        load={key: value for key, value in merged.items() if key not in _OURS},
        overrides=Overrides(regex, table),
        labels={str(key): str(value) for key, value in labels.items() if value is not None},
        source_name=merged.get("dataSourceName") or "",
        transform=_transform(levels, contents),
        ordered=ordered(levels),
        files=tuple(file.key for file in wanted(levels)),
        origins=origins,
        traced=traced([(DEFAULT, _DEFAULTS), *documents]),
        size=sum(file.size for file in wanted(levels)),
    )


def merge(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults, then the documents in this order, each over those before it; and which document each key is from."""
    merged: dict[str, Any] = dict(_DEFAULTS)
    origins: dict[str, str] = {}
    for origin, document in documents:
        merged = _over(merged, document)
        origins |= dict.fromkeys(document, origin)
    return merged, origins


def traced(layers: Sequence[tuple[str, Any]], path: str = "") -> dict[str, str]:
    """Which of the layers, from the first to the closest, each key of their merge is from."""
    last = max((index for index, (_, value) in enumerate(layers) if not isinstance(value, dict)), default=-1)
    if last == len(layers) - 1 or (path and len(layers) - last == 2):
        return {path: layers[-1][0]}  # a plain value, or an object that is of one file alone
    merged = layers[last + 1 :]
    found: dict[str, str] = {}
    for key in dict.fromkeys(key for _, value in merged for key in value):
        said = [(origin, value[key]) for origin, value in merged if key in value]
        found |= traced(said, f"{path}.{key}" if path else str(key))
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Objects are merged key by key; lists, texts, numbers and null replace what was there."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _over(known, value) if isinstance(value, dict) and isinstance(known, dict) else value
    return merged


def read_object(data: bytes, url: str) -> dict[str, Any]:
    """A JSON object; a comma too many is forgiven. Empty: nothing is said."""
    try:
        text = data.decode("utf-8-sig")
        text = _TRAILING_COMMA.sub(lambda match: match[1] or " ", text)
        documents = read_documents(text, url)
    except UnicodeDecodeError:
        raise BadConfig(f"{url}: not UTF-8 text") from None
    except DocumentError as error:
        raise _refused(error) from None
    value = native(documents[0]) if documents else {}
    if not isinstance(value, dict):
        raise BadConfig(f"{url}: has to be a JSON object")
    return value


def _refused(error: DocumentError) -> BadConfig:
    """Every problem, up to what a person reads: the text is kept in the batch's record."""
    shown = [_cut(str(problem), _LONGEST_PROBLEM) for problem in error.problems[:_MOST_SHOWN]]
    rest = len(error.problems) - len(shown)
    return BadConfig("; ".join(shown) + (f"; and {rest} more" if rest else ""))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def load_options(found: Configured) -> dict[str, Any]:
    """The merged load.json as BigQuery's `JobConfigurationLoad`, every option checked; raises `BadConfig`."""
    data = LocatedDict(Place("load.json"))
    for key, value in found.load.items():
        place = Place(found.origins.get(key, "load.json"))
        data.put(key, value, place, place)
    try:
        options = validate(LoadOptions, data, "load.json")
    except DocumentError as error:
        raise _refused(error) from None
    return options.load_configuration()


def _transform(levels: Levels, contents: Mapping[ConfigFile, bytes]) -> Transform | None:
    candidates = _closest_sql(levels)
    if len(candidates) > 1:
        names = ", ".join(file.ref.url for file in candidates)
        raise BadConfig(f"one transformation per _config/, and these are several: {names}")
    if not candidates:
        return None
    file = candidates[0]
    try:
        sql = contents[file].decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise BadConfig(f"{file.ref.url}: not UTF-8 text") from None
    if not sql:
        return None  # an empty file says: here, load the files as they are
    external: dict[str, Any] = {}
    if (found := _closest(levels, lambda name: name == EXTERNAL)) is not None:
        external = read_object(contents[found], found.ref.url)
    return Transform(sql, file.ref.url, file.name == SPARK_SQL, {**_EXTERNAL_DEFAULT, **external}, bool(external))


def _closest_sql(levels: Levels) -> list[ConfigFile]:
    for level in reversed(levels):
        if found := [file for file in level if file.name.endswith(".sql")]:
            return found
    return []


def _closest(levels: Levels, matches: Any) -> ConfigFile | None:
    return next((file for level in reversed(levels) for file in level if matches(file.name)), None)
