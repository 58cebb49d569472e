"""What went wrong in which file, in BigQuery's words.

BigQuery stops reading once a job has met more bad records than `maxBadRecords`, and what its parallel workers saw by
then is in `errors[]`. Here the files are read in order; after the limit is passed, each further file is read up to its
first bad record, so that one failed job names every bad file (up to `MAX_FILES`), always the same way.
"""

from dataclasses import dataclass, field

from ingestd.formats.convert import BadValueError, Fault
from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.model.schema import Field, Type

MAX_FILES = 100
MAX_RECORDS_PER_FILE = 5
MAX_WARNINGS = 100
READING = "Error while reading data, error message: "

_TIMESTAMP_FORMATS = "Required format is YYYY-MM-DD HH:MM[:SS[.SSSSSS]] or YYYY/MM/DD HH:MM[:SS[.SSSSSS]]"
_JSON_NAMES = {Type.INT64: "integer", Type.FLOAT64: "float", Type.BOOL: "boolean"}
_CSV_NAMES = {Type.FLOAT64: "DOUBLE"}


def json_value_text(bad: BadValueError) -> str:
    """A refused JSON value, as load jobs say it."""
    match bad.fault:
        case Fault.UNKNOWN:
            return f"No such field: {bad.path}."
        case Fault.NULL:
            return f"Only optional fields can be set to NULL. Field: {bad.path}; Value: NULL"
        case Fault.MISSING:
            return f"Missing required field: {bad.path}."
        case Fault.NOT_ARRAY:
            return f"Repeated field must be imported as a JSON array. Field: {bad.path}."
        case Fault.NESTED_ARRAY:
            return f"Array specified for non-repeated field: {bad.path}."
        case Fault.NOT_SCALAR:
            return f"JSON object specified for non-record field: {bad.path}"
        case Fault.NOT_RECORD:
            return f"Scalar value specified for record field: {bad.path}; Value: {bad.shown}"
        case Fault.VALUE:
            name = _JSON_NAMES.get(bad.type, bad.type.lower()) if bad.type else "value"
            if bad.type is Type.TIMESTAMP:
                reason = f"Could not parse '{bad.shown}' as a timestamp. {_TIMESTAMP_FORMATS}"
                return f"Couldn't convert value to timestamp: {reason} Field: {bad.path}; Value: {bad.shown}"
            return f"Could not convert value to {name}. Field: {bad.path}; Value: {bad.shown}"


def streamed_value_text(bad: BadValueError) -> str:
    """A refused JSON value, as `tabledata.insertAll` says it."""
    match bad.fault:
        case Fault.UNKNOWN:
            return f"no such field: {bad.path.rpartition('.')[2]}."
        case Fault.NULL | Fault.MISSING:
            return f"Missing required field: {bad.path}."
        case Fault.NOT_ARRAY:
            return "Repeated field must be an array."
        case Fault.NESTED_ARRAY:
            return "Array specified for non-repeated field."
        case Fault.NOT_SCALAR:
            return "This field is not a record."
        case Fault.NOT_RECORD:
            return "This field is a record."
        case Fault.VALUE:
            name = _JSON_NAMES.get(bad.type, bad.type.lower()) if bad.type else "value"
            return f"Cannot convert value to {name} (bad value): {bad.shown}"


def csv_value_text(column: Field, index: int, text: str, position: int, why: str = "Unable to parse") -> str:
    name = _CSV_NAMES.get(column.type, column.type.value)
    return (
        f"Could not parse '{text}' as {name} for field {column.name} (position {index}) "
        f"starting at location {position} with message '{why}'"
    )


@dataclass(slots=True)
class _FileTally:
    uri: str
    rows: int = 0
    bad: int = 0
    records: list[ErrorProto] = field(default_factory=list)
    gave_up: bool = False


class Tally:
    """Counts rows and bad records of a job and decides when to give up."""

    def __init__(self, label: str, max_bad_records: int) -> None:
        self._label = label
        self._max_bad = max_bad_records
        self._files: dict[str, _FileTally] = {}
        self._fatal: list[ErrorProto] = []
        self._given_up = 0
        self.rows = 0
        self.bad_records = 0

    def _of(self, uri: str) -> _FileTally:
        found = self._files.get(uri)
        if found is None:
            found = self._files[uri] = _FileTally(uri)
        return found

    @property
    def failed(self) -> bool:
        return self.bad_records > self._max_bad or bool(self._fatal)

    @property
    def full(self) -> bool:
        """Enough bad files are known; there is no point in reading more."""
        return len(self._fatal) + self._given_up >= MAX_FILES

    def gave_up(self, uri: str) -> bool:
        found = self._files.get(uri)
        return found is not None and found.gave_up

    def good(self, uri: str, rows: int) -> None:
        self._of(uri).rows += rows
        self.rows += rows

    def bad(self, uri: str, message: str) -> None:
        """One bad record. After this, `gave_up(uri)` says whether to go on with the file."""
        file = self._of(uri)
        file.rows += 1
        file.bad += 1
        self.bad_records += 1
        if len(file.records) < MAX_RECORDS_PER_FILE:
            file.records.append(ErrorProto("invalid", f"{READING}{message} File: {uri}", uri))
        if self.bad_records > self._max_bad and not file.gave_up:
            file.gave_up = True
            self._given_up += 1

    def unreadable(self, uri: str, message: str, reason: str = "invalid") -> None:
        """A file that cannot be read at all; `maxBadRecords` does not cover it."""
        if all(known.location != uri for known in self._fatal):
            self._fatal.append(ErrorProto(reason, message, uri))

    def raise_if_failed(self) -> None:
        if not self.failed:
            return
        details: list[ErrorProto] = []
        given_up = [file for file in self._files.values() if file.gave_up]
        for file in given_up:
            summary = (
                f"{READING}{self._label} processing encountered too many errors, giving up. Rows: {file.rows}; "
                f"errors: {file.bad}; max bad: {self._max_bad}; error percent: 0"
            )
            details += [ErrorProto("invalid", summary), *file.records]
        if self._fatal:
            first, *others = self._fatal
            raise BigQueryError(first.reason, first.message, first.location, (*others, *details))
        first_file = given_up[0]
        message = (
            f"{READING}{self._label} table encountered too many errors, giving up. Rows: {first_file.rows}; "
            f"errors: {first_file.bad}. Please look into the errors[] collection for more details."
        )
        raise BigQueryError("invalid", message, first_file.uri, tuple(details))

    def warnings(self) -> tuple[ErrorProto, ...]:
        """The bad records that were tolerated."""
        return tuple(record for file in self._files.values() for record in file.records)[:MAX_WARNINGS]
