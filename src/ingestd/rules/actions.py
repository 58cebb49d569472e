"""Post-actions as rules write them: one typed request per action, each refused at load when it cannot work.

A request keeps its variables as written; `Action.expanded` fills them in, SQL by position (see `rules.sql`).
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from ingestd.documents import AnyValue, Document, Many
from ingestd.model.quantities import Duration
from ingestd.rules.expansion import Scope, render
from ingestd.rules.fields import Choice, TableText
from ingestd.rules.sql import expand_sql

LOAD_URIS = "$LoadURIs"


class Request(Document):
    """What an action is asked to do. `sql_fields` are filled in as SQL, the others as text or data."""

    sql_fields: ClassVar[frozenset[str]] = frozenset()

    def expanded(self, scope: Scope) -> Self:
        """This request with its variables replaced; raises ValueError when a value does not fit its field."""
        filled: dict[str, Any] = {}
        legacy = bool(getattr(self, "use_legacy", False))
        for name in self.model_fields_set:
            value = getattr(self, name)
            if isinstance(value, str) and name in self.sql_fields:
                filled[name] = expand_sql(value, scope, legacy=legacy)
            elif isinstance(value, str) and type(self).model_fields[name].annotation is not Any:
                filled[name] = render(scope.expand_text(value))
            elif isinstance(value, Document):
                filled[name] = value
            else:
                filled[name] = scope.expand(value)
        return type(self).model_validate(filled)


class DeleteRequest(Request):
    """Delete the given objects; without a request, the files of the load."""

    other_names: ClassVar[Mapping[str, str]] = {"Source": "SourceURL"}
    urls: Many[str] = ()
    source_url: str | None = Field(None, alias="SourceURL")

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.urls and not self.source_url:
            raise ValueError("URLs is empty; leave the request out to delete the loaded files")
        return self


class MoveRequest(Request):
    """Move objects under `DestURL`, keeping their path, or to exactly `DestURL` when it is absolute."""

    other_names: ClassVar[Mapping[str, str]] = {"Source": "SourceURL", "Dest": "DestURL", "URLs": "SourceURLs"}
    source_url: str | None = None
    source_urls: Many[str] = ()
    dest_url: str = Field(min_length=1)
    is_dest_absolute_url: bool = False

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        named = data.get("SourceURL") or data.get("SourceURLs")
        return data if named else {**data, "SourceURLs": [LOAD_URIS]}


class CopyRequest(Request):
    """Copy a table. `Append: false`, the default, replaces the destination's rows."""

    sql_fields: ClassVar[frozenset[str]] = frozenset({"partition_sql"})
    source: TableText | None = None
    dest: TableText
    append: bool = False
    template: TableText | None = None
    multi_partition: bool = False
    partition_sql: str | None = None


class QueryRequest(Request):
    """Run a statement, optionally into a table. `Append: false`, the default, replaces the destination's rows."""

    sql_fields: ClassVar[frozenset[str]] = frozenset({"sql"})
    sql: str | None = None
    sql_url: str | None = Field(None, alias="SQLURL")
    dest: TableText | None = None
    append: bool = False
    template: TableText | None = None
    use_legacy: bool = False
    dataset_id: str | None = None

    @model_validator(mode="after")
    def _has_a_statement(self) -> Self:
        if not self.sql and not self.sql_url:
            raise ValueError("SQL is empty; give SQL or SQLURL")
        return self


class ExportFormat(Choice):
    CSV = "CSV"
    NEWLINE_DELIMITED_JSON = "NEWLINE_DELIMITED_JSON"
    AVRO = "AVRO"
    PARQUET = "PARQUET"


class Compression(Choice):
    NONE = "NONE"
    GZIP = "GZIP"
    DEFLATE = "DEFLATE"
    SNAPPY = "SNAPPY"
    ZSTD = "ZSTD"


class ExportRequest(Request):
    """Export a table to files; format and compression are read off `DestURL` unless given."""

    other_names: ClassVar[Mapping[str, str]] = {"Dest": "DestURL"}
    source: TableText | None = None
    dest_url: str = Field(min_length=1)
    format: ExportFormat | None = None
    compression: Compression | None = None
    field_delimiter: str | None = None
    include_header: bool | None = None
    use_avro_logical_types: bool | None = None
    project_id: str | None = None

    @property
    def resolved_format(self) -> ExportFormat:
        """The format asked for, by name or by the destination's extension; CSV as in BigQuery when neither says."""
        if self.format:
            return self.format
        by_extension = {
            ".json": ExportFormat.NEWLINE_DELIMITED_JSON,
            ".avro": ExportFormat.AVRO,
            ".parquet": ExportFormat.PARQUET,
        }
        url = self.dest_url.lower()
        return next((kind for extension, kind in by_extension.items() if extension in url), ExportFormat.CSV)

    @property
    def resolved_compression(self) -> Compression | None:
        return self.compression or (Compression.GZIP if self.dest_url.lower().endswith(".gz") else None)


class InsertRequest(Request):
    """Stream rows, given or selected by a statement, into a table."""

    sql_fields: ClassVar[frozenset[str]] = frozenset({"sql"})
    dest: TableText
    sql: str | None = None
    sql_url: str | None = Field(None, alias="SQLURL")
    data: AnyValue = None
    template: TableText | None = None
    use_legacy: bool = False
    project_id: str | None = None

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if not self.sql and not self.sql_url and self.data is None:
            raise ValueError("nothing to insert; give SQL or Data")
        return self


class SparkFormat(Choice):
    PARQUET = "PARQUET"
    AVRO = "AVRO"
    NEWLINE_DELIMITED_JSON = "NEWLINE_DELIMITED_JSON"
    CSV = "CSV"
    ORC = "ORC"


class SparkRequest(Request):
    """Run Spark SQL over the batch's rows (the view `batch`) and write a table or files.

    Like every action that writes a table it replaces the rows unless `Append` is true; files always go to a folder
    of the batch's own under `DestURL`, so that a repeated run replaces what the first one wrote and nothing else.
    """

    sql_fields: ClassVar[frozenset[str]] = frozenset({"sql"})
    sql: str | None = None
    sql_url: str | None = Field(None, alias="SQLURL")
    dest: TableText | None = None
    append: bool = False
    dest_url: str | None = Field(None, min_length=1)
    format: SparkFormat | None = None
    compression: Compression | None = None
    use_legacy: ClassVar[bool] = False

    @property
    def resolved_format(self) -> SparkFormat:
        """The format asked for, by name or by the destination's extension; Parquet when neither says."""
        if self.format:
            return self.format
        by_extension = {
            ".json": SparkFormat.NEWLINE_DELIMITED_JSON,
            ".csv": SparkFormat.CSV,
            ".avro": SparkFormat.AVRO,
            ".orc": SparkFormat.ORC,
        }
        url = (self.dest_url or "").lower()
        return next((kind for extension, kind in by_extension.items() if extension in url), SparkFormat.PARQUET)

    @model_validator(mode="after")
    def _says_what_and_where(self) -> Self:
        if not self.sql and not self.sql_url:
            raise ValueError("SQL is empty; give SQL or SQLURL")
        if bool(self.dest) == bool(self.dest_url):
            raise ValueError("give either Dest, a table, or DestURL, a folder for files")
        if self.dest and (self.format or self.compression):
            raise ValueError("Format and Compression are for files; leave them out, or give DestURL")
        if self.dest_url and self.append:
            raise ValueError("Append is for tables: files of different batches never replace one another")
        return self


class DropRequest(Request):
    table: TableText
    project_id: str | None = None


class PushRequest(Request):
    """Publish a Pub/Sub message. `Data` wins over `Message`; a mapping is sent as JSON."""

    topic: str = Field(min_length=1)
    project_id: str | None = None
    message: AnyValue = None
    data: str | None = None
    attributes: dict[str, AnyValue] = Field(default_factory=dict)


class Method(Choice):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"


class CallRequest(Request):
    """Call an HTTP endpoint; any answer but 2xx is a failure."""

    url: str = Field(min_length=1, pattern=r"^(https?://|\$)")
    method: Method = Method.GET
    body: AnyValue = None
    body_url: str | None = Field(None, alias="BodyURL")
    auth: bool = False
    scopes: Many[str] = ()
    headers: dict[str, str] = Field(default_factory=dict)
    timeout: Duration | None = None
    retries: int | None = Field(None, ge=0, le=20)


class Credentials(Document):
    """Where a secret lies: `URL` of the (encrypted) file, `Key` to decrypt it, `Parameter` inside it."""

    url: str = Field(alias="URL")
    key: str | None = None
    parameter: str | None = None


class NotifyRequest(Request):
    """Tell people through Slack."""

    other_names: ClassVar[Mapping[str, str]] = {"Secret": "Credentials"}
    channels: Many[str] = Field(min_length=1)
    title: str = Field(min_length=1)
    message: str | None = None
    from_: str | None = Field(None, alias="From")
    filename: str | None = None
    body: AnyValue = None
    body_type: str | None = None
    token: str | None = Field(None, repr=False)
    credentials: Credentials | None = None


class Condition(Document):
    """Run an action only if a table exists."""

    exists: TableText


class Action(Document):
    """What every action has. `When` is asked just before it runs; false skips it and everything nested in it."""

    action: str
    when: Condition | None = None
    on_success: "Many[AnyAction]" = ()
    on_failure: "Many[AnyAction]" = ()

    @property
    def name(self) -> str:
        return self.action

    @property
    def body(self) -> Request:
        """The request, for code that treats all actions alike."""
        request: Request = self.request  # type: ignore[attr-defined]
        return request

    def expanded(self, scope: Scope) -> Self:
        """This action with the variables of its own request and condition replaced; nested actions stay as written."""
        update: dict[str, Any] = {"request": self.body.expanded(scope)}
        if self.when:
            update["when"] = Condition(exists=render(scope.expand_text(self.when.exists)))
        return self.model_copy(update=update)

    def nested(self) -> Iterator["Action"]:
        """This action and all below it, in order."""
        yield self
        for child in (*self.on_success, *self.on_failure):
            yield from child.nested()

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        name = data.get("Action") or get_args(cls.model_fields["action"].annotation)[0]
        return {**data, "Action": str(name).lower()}


class DeleteAction(Action):
    completed: ClassVar[frozenset[str]] = frozenset({"Request"})
    action: Literal["delete"]
    request: DeleteRequest

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        data = super().complete(data)
        return data if data.get("Request") else {**data, "Request": {"URLs": [LOAD_URIS]}}


class MoveAction(Action):
    action: Literal["move"]
    request: MoveRequest


class CopyAction(Action):
    action: Literal["copy"]
    request: CopyRequest


class QueryAction(Action):
    action: Literal["query"]
    request: QueryRequest


class ExportAction(Action):
    action: Literal["export"]
    request: ExportRequest


class InsertAction(Action):
    action: Literal["insert"]
    request: InsertRequest


class SparkAction(Action):
    action: Literal["spark"]
    request: SparkRequest


class DropAction(Action):
    action: Literal["drop"]
    request: DropRequest


class PushAction(Action):
    action: Literal["push"]
    request: PushRequest


class CallAction(Action):
    action: Literal["call"]
    request: CallRequest


class NotifyAction(Action):
    action: Literal["notify"]
    request: NotifyRequest


def action_name(data: Any) -> str | None:
    """The lower-cased `Action` of raw data, or None when there is none; tells pydantic which model applies."""
    if isinstance(data, Action):
        return data.action
    if not isinstance(data, dict):
        return None
    value = next((value for key, value in data.items() if str(key).lower() == "action"), None)
    return str(value).lower() if isinstance(value, str) else None


AnyAction = Annotated[
    Annotated[DeleteAction, Tag("delete")]
    | Annotated[MoveAction, Tag("move")]
    | Annotated[CopyAction, Tag("copy")]
    | Annotated[QueryAction, Tag("query")]
    | Annotated[ExportAction, Tag("export")]
    | Annotated[InsertAction, Tag("insert")]
    | Annotated[SparkAction, Tag("spark")]
    | Annotated[DropAction, Tag("drop")]
    | Annotated[PushAction, Tag("push")]
    | Annotated[CallAction, Tag("call")]
    | Annotated[NotifyAction, Tag("notify")],
    Discriminator(action_name),
]

ACTIONS: dict[str, type[Action]] = {
    "delete": DeleteAction,
    "move": MoveAction,
    "copy": CopyAction,
    "query": QueryAction,
    "export": ExportAction,
    "insert": InsertAction,
    "spark": SparkAction,
    "drop": DropAction,
    "push": PushAction,
    "call": CallAction,
    "notify": NotifyAction,
}
"""Every action by name."""
