"""What the daemon needs from the outside world, as Protocols.

`ingestd.gcp` implements them with Google's clients; simulations bind them to the local cloud's cores. Every method
raises only the kinds of `ingestd.model.errors`; preconditions that do not hold raise `PreconditionFailed`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from ingestd.model.addresses import Address, public
from ingestd.model.errors import IngestError
from ingestd.model.jobs import JobRef, JobRequest, JobState
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef
from ingestd.model.preparation import Prepared, PrepareRequest
from ingestd.model.schema import Schema
from ingestd.model.tables import TableName


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete: in this generation only, unless it is one that nobody else writes."""

    ref: ObjectRef
    generation: Generation | None


@dataclass(frozen=True, slots=True)
class Copy:
    """One generation of an object, to be copied; `metadata` is added to the source's own.

    `seen`: that generation as `stat_all` has just told it, which need not be asked for again.
    """

    source: ObjectRef
    target: ObjectRef
    source_generation: Generation
    if_generation: Generation | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    seen: ObjectInfo | None = None


class ObjectStore(Protocol):
    async def stat(self, ref: ObjectRef, *, generation: Generation | None = None) -> ObjectInfo | None:
        """The object's (or that generation's) description; None when there is none."""
        ...

    async def read(
        self, ref: ObjectRef, *, generation: Generation | None = None, largest: int | None = None
    ) -> tuple[bytes, ObjectInfo]:
        """Content and description of one and the same generation; `NotFound` when there is none.

        More bytes than `largest` are not read: `UnreadableObject`.
        """
        ...

    async def create(
        self,
        ref: ObjectRef,
        data: bytes,
        *,
        if_generation: Generation | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        """Write the object; `if_generation=ABSENT` creates only, another value replaces exactly that generation."""
        ...

    async def delete(self, ref: ObjectRef, *, if_generation: Generation | None = None) -> bool:
        """Delete; False when it was already gone."""
        ...

    async def copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        *,
        source_generation: Generation | None = None,
        if_generation: Generation | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        """Server-side copy of one generation; `metadata` is added to the source's own."""
        ...

    # Many at once cost a fraction of as many calls. Each object has an outcome of its own, in the order given: what the
    # single call would have answered, or the error it would have raised. None of them is raised.

    async def stat_all(self, refs: Sequence[ObjectRef]) -> Sequence[ObjectInfo | IngestError | None]: ...

    async def delete_all(self, deletions: Sequence[Deletion]) -> Sequence[bool | IngestError]: ...

    async def copy_all(self, copies: Sequence[Copy]) -> Sequence[Generation | IngestError]: ...

    def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = "", glob: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        """Objects whose name starts with the prefix, in name order: from `start` on, and before `end`.

        `glob`: only names that match (`*` stops at a slash, `{a,b}` is either), as one call; `TooWide` when the store
        does not answer in one.
        """
        ...


class FileStore(ObjectStore, Protocol):
    """An object store that moves content as it is stored, in parts and to and from files: for data, not for records."""

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        """The bytes from `start` to before `end`, never decoded; None when that generation is gone.

        A whole object is checked against its checksum; of a part, the caller knows when it is complete. One that
        is said to be `small` may come without the care that large ones need.
        """
        ...

    async def upload(self, ref: ObjectRef, path: Path, *, content_type: str = "application/octet-stream") -> Generation:
        """Write the object from a file, which is not held in memory."""
        ...


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's description in BigQuery's own REST form, with its name and location apart."""

    name: TableName
    location: str
    resource: dict[str, Any]


class Warehouse(Protocol):
    @property
    def project(self) -> str:
        """The project that runs jobs unless a request names another."""
        ...

    async def insert_job(self, request: JobRequest) -> JobState:
        """Submit the job; when the id is taken, the existing job is the answer (adopted, never run twice)."""
        ...

    async def get_job(self, ref: JobRef) -> JobState | None: ...

    async def child_jobs(self, ref: JobRef) -> list[JobState]:
        """The jobs of a script's statements, oldest first; none when it is no script."""
        ...

    async def cancel_job(self, ref: JobRef) -> None: ...

    async def table(self, name: TableName) -> TableInfo | None: ...

    async def create_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        """Create the table; one that exists already is fine and is returned."""
        ...

    async def patch_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo: ...

    async def delete_table(self, name: TableName) -> bool:
        """Drop; False when it was already gone."""
        ...

    async def dataset_location(self, project: str, dataset: str) -> str | None: ...

    async def create_dataset(
        self, project: str, dataset: str, location: str, *, table_expiration: timedelta | None = None
    ) -> str:
        """Create the dataset; one that exists already is fine. Where it is; its tables expire unless told otherwise."""
        ...

    async def rows(self, job: JobRef, *, limit: int | None = None, start: int = 0) -> list[dict[str, Any]]:
        """The result rows of a finished query job, at most `limit` from number `start` on; their order is fixed."""
        ...

    async def insert_rows(self, name: TableName, rows: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> None:
        """Stream rows; `ids` make a repeated call harmless."""
        ...


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in Arrow, and their columns."""

    schema: Schema
    table: Any  # pyarrow.Table


class TableReader(Protocol):
    """Reads small tables whole: what a batch is joined with."""

    async def read(
        self, source: TableName | str, *, parameters: Sequence[Mapping[str, Any]] = (), most: int
    ) -> TableRows:
        """Every row of a table, or of a GoogleSQL query with named parameters (REST form).

        `BadInput` when the rows take more than `most` bytes, `NotFound` when there is no such table.
        """
        ...


class Preparer(Protocol):
    """Reads a batch's files once and leaves few well-sized ones: the data pipeline before the load."""

    async def prepare(self, request: PrepareRequest) -> Prepared:
        """Prepare the batch under the request's folder, manifest last; an attempt whose manifest exists is its answer.

        Raises `Transient` when another attempt may help (a dead session, a lost executor), `Throttled` when there
        is no room now, `BadInput` when the request cannot work (an expression, a policy that fails the batch).
        Cancelling stops its work.
        """
        ...

    async def discard(self, folder: ObjectRef) -> None:
        """Remove what attempts left under the batch's folder; nothing there is fine."""
        ...


class SparkSql(Protocol):
    """Spark SQL over the rows of a batch."""

    async def query(self, statement: str, request: PrepareRequest) -> Prepared:
        """The statement's rows as files in the request's folder, manifest last; the batch is the view `batch`.

        A folder whose manifest exists is the answer. Raises as `Preparer.prepare` does.
        """
        ...

    async def discard(self, folder: ObjectRef) -> None:
        """Remove what runs left there; nothing is fine."""
        ...


class Message(Protocol):
    """A pulled message and the id that acknowledges it."""

    @property
    def ack_id(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def attributes(self) -> Mapping[str, str]: ...

    @property
    def message_id(self) -> str: ...

    @property
    def delivery_attempt(self) -> int: ...

    @property
    def published(self) -> int:
        """Unix seconds; 0: not known."""
        ...


@dataclass(slots=True)
class PlainMessage:
    """A message whose parts are at hand."""

    ack_id: str
    data: bytes
    attributes: Mapping[str, str]
    message_id: str = ""
    delivery_attempt: int = 0
    published: int = 0


class Subscription(Protocol):
    @property
    def name(self) -> str: ...

    async def pull(self, limit: int) -> list[Message]:
        """Up to `limit` messages; empty when none came for a while."""
        ...

    async def ack(self, ack_ids: Sequence[str]) -> None: ...

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None:
        """Keep (or with zero, give back) the lease on these messages."""
        ...


class Publisher(Protocol):
    async def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str: ...

    async def publish_all(self, topic: str, messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> list[str]:
        """Publish up to 1,000 messages (10 MB) in one call: all of them, or none."""
        ...


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpClient(Protocol):
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        limit: timedelta,
        reach: Callable[[Address], bool] = public,
    ) -> HttpAnswer:
        """`reach` is asked about the addresses of the URL's host; the connection goes to one that it says yes to."""
        ...

    async def identity_token(self, audience: str) -> str:
        """A token that proves who the daemon is to that audience."""
        ...
