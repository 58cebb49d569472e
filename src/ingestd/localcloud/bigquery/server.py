"""The REST face of the local BigQuery: requests to core calls, results and errors to Google's JSON.

Core calls run in threads, because they may wait for the writer; waiting for a query's completion does not hold one.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import structlog

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.jobs import Job, JobKey
from ingestd.localcloud.bigquery.routes import Match, discovery, match
from ingestd.localcloud.bigquery.upload_protocol import UPLOAD_PATH, Posted, UploadSessions
from ingestd.localcloud.faults import FaultInjected, ResponseLost
from ingestd.localcloud.http import DropConnection, Handler, Request, Response

log = structlog.get_logger(__name__)

_DISCOVERY_PATHS = ("/discovery/v1/apis/bigquery/v2/rest", "/$discovery/rest", "/%24discovery/rest")
_DEFAULT_TIMEOUT_MS = 10_000
_MAX_TIMEOUT_MS = 200_000
_THREADS = 32
_UNSUPPORTED = {
    "datasets.undelete": "undeleting datasets",
    "tables.getIamPolicy": "IAM policies",
    "tables.setIamPolicy": "IAM policies",
    "models.get": "models",
    "models.patch": "models",
    "models.delete": "models",
    "routines.insert": "routines",
    "routines.get": "routines",
    "routines.update": "routines",
    "routines.delete": "routines",
    "rowAccessPolicies.insert": "row access policies",
}


def make_handler(core: BigQueryCore) -> Handler:
    return _Server(core).handle


class _Server:
    def __init__(self, core: BigQueryCore) -> None:
        self._core = core
        self._uploads = UploadSessions()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="bigquery-http")
        self._methods: Mapping[str, Callable[[Request, Mapping[str, str]], Any]] = {
            "projects.list": self._list_projects,
            "projects.getServiceAccount": self._service_account,
            "datasets.list": lambda request, at: core.metadata.list_datasets(at["projectId"], request.query),
            "datasets.insert": lambda request, at: core.metadata.insert_dataset(at["projectId"], _body(request)),
            "datasets.get": lambda _, at: core.metadata.get_dataset(at["projectId"], at["datasetId"]),
            "datasets.patch": lambda request, at: self._update_dataset(request, at, patch=True),
            "datasets.update": lambda request, at: self._update_dataset(request, at, patch=False),
            "datasets.delete": self._delete_dataset,
            "tables.list": lambda request, at: core.metadata.list_tables(*_dataset(at), request.query),
            "tables.insert": lambda request, at: core.metadata.insert_table(*_dataset(at), _body(request)),
            "tables.get": lambda _, at: core.metadata.get_table(*_table(at)),
            "tables.patch": lambda request, at: self._update_table(request, at, patch=True),
            "tables.update": lambda request, at: self._update_table(request, at, patch=False),
            "tables.delete": lambda _, at: core.metadata.delete_table(*_table(at)),
            "tables.testIamPermissions": lambda request, _: {"permissions": _body(request).get("permissions") or []},
            "tabledata.list": lambda request, at: core.tabledata.list_rows(*_table(at), request.query),
            "tabledata.insertAll": lambda request, at: core.tabledata.insert_all(*_table(at), _body(request)),
            "jobs.list": lambda request, at: core.jobs.list_jobs(
                at["projectId"], request.query, request.query_list("stateFilter")
            ),
            "jobs.insert": lambda request, at: _job(core.insert_job(at["projectId"], _body(request))),
            "jobs.get": lambda request, at: _job(core.jobs.get(*_job_path(request, at))),
            "jobs.cancel": self._cancel,
            "jobs.delete": lambda request, at: core.jobs.delete(*_job_path(request, at)),
            "models.list": self._empty_of_dataset,
            "routines.list": self._empty_of_dataset,
            "rowAccessPolicies.list": self._empty_of_table,
        }

    async def handle(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except BigQueryError as error:
            return _failure(error)
        except FaultInjected as injected:
            fault = injected.fault
            entry = {"message": fault.message, "domain": "global", "reason": fault.reason}
            body = {"code": fault.status, "message": fault.message, "errors": [entry]}
            return Response.json({"error": body}, fault.status)
        except ResponseLost as lost:
            raise DropConnection from lost
        except orjson.JSONDecodeError as error:
            return _failure(BigQueryError("badRequest", f"Invalid JSON payload received. {error}"))

    async def _respond(self, request: Request) -> Response:
        if request.method == "GET" and request.path in _DISCOVERY_PATHS:
            return Response.json(discovery(f"http://{request.host}/"))
        if upload := UPLOAD_PATH.match(request.path):
            return await self._upload(request, upload["project"])
        found = match(request.method, request.path)
        if found is None:
            return _failure(BigQueryError("notFound", f"Not found: {request.method} {request.path}"))
        if delay := self._core.hooks.delay(found.name, found.resource):
            await asyncio.sleep(delay)
        if found.name in _UNSUPPORTED:
            raise not_implemented(_UNSUPPORTED[found.name])
        if found.name == "jobs.query":
            return await self._query(request, found)
        if found.name == "jobs.getQueryResults":
            return await self._query_results(request, found)
        if found.name == "jobs.get" and not self._core.settings.job_latency:
            # Clients sleep about a second between polls; a one-row load takes milliseconds.
            await self._settle(request, found)
        method = self._methods[found.name]
        result = await self._call(lambda: method(request, found.arguments))
        return Response(204) if result is None else Response.json(result)

    async def _call(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _upload(self, request: Request, project: str) -> Response:
        posted = self._uploads.handle(request, project)
        if isinstance(posted, Posted):
            job = await self._call(lambda: self._core.upload_job(posted.project, posted.resource, posted.data))
            return Response.json(_job(job))
        return posted

    async def _query(self, request: Request, found: Match) -> Response:
        body = _body(request)
        inserted = await self._call(lambda: self._core.jobs.start_query(found.arguments["projectId"], body))
        if inserted.job.dry_run:
            return Response.json(self._core.jobs.dry_run_response(inserted.job))
        await self._until_done(inserted.key, _timeout(body.get("timeoutMs")))
        return Response.json(await self._call(lambda: self._core.jobs.query_response(inserted.key, body)))

    async def _query_results(self, request: Request, found: Match) -> Response:
        project, job_id = found.arguments["projectId"], found.arguments["jobId"]
        jobs = self._core.jobs
        job = await self._call(lambda: jobs.find(project, job_id, request.query.get("location")))
        await self._until_done(job.key, _timeout(request.query.get("timeoutMs")))
        return Response.json(await self._call(lambda: jobs.query_results(project, job_id, request.query)))

    async def _settle(self, request: Request, found: Match) -> None:
        location = request.query.get("location") or self._core.settings.default_location
        key = JobKey(found.arguments["projectId"], location, found.arguments["jobId"])
        await self._until_done(key, self._core.settings.poll_grace.total_seconds())

    async def _until_done(self, key: JobKey, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        if seconds > 0 and self._core.runner.on_done(key, notify):
            try:
                async with asyncio.timeout(seconds):
                    await done.wait()
            except TimeoutError:
                return

    def _list_projects(self, _: Request, __: Mapping[str, str]) -> dict[str, Any]:
        project = self._core.project
        entry = {
            "kind": "bigquery#project",
            "id": project,
            "numericId": self._core.settings.project_number,
            "projectReference": {"projectId": project},
            "friendlyName": project,
        }
        return {"kind": "bigquery#projectList", "etag": project, "projects": [entry], "totalItems": 1}

    def _service_account(self, _: Request, __: Mapping[str, str]) -> dict[str, Any]:
        email = f"bq-{self._core.settings.project_number}@bigquery-encryption.iam.gserviceaccount.com"
        return {"kind": "bigquery#getServiceAccountResponse", "email": email}

    def _update_dataset(self, request: Request, at: Mapping[str, str], *, patch: bool) -> dict[str, Any]:
        return self._core.metadata.update_dataset(
            *_dataset(at), _body(request), patch=patch, etag=request.headers.get("if-match")
        )

    def _delete_dataset(self, request: Request, at: Mapping[str, str]) -> None:
        contents = request.query.get("deleteContents", "").lower() == "true"
        self._core.metadata.delete_dataset(*_dataset(at), delete_contents=contents)

    def _update_table(self, request: Request, at: Mapping[str, str], *, patch: bool) -> dict[str, Any]:
        return self._core.metadata.update_table(
            *_table(at), _body(request), patch=patch, etag=request.headers.get("if-match")
        )

    def _cancel(self, request: Request, at: Mapping[str, str]) -> dict[str, Any]:
        return {"kind": "bigquery#jobCancelResponse", "job": _job(self._core.jobs.cancel(*_job_path(request, at)))}

    def _empty_of_dataset(self, _: Request, at: Mapping[str, str]) -> dict[str, Any]:
        """Models and routines do not exist here; the dataset must."""
        self._core.metadata.get_dataset(*_dataset(at))
        return {}

    def _empty_of_table(self, _: Request, at: Mapping[str, str]) -> dict[str, Any]:
        self._core.metadata.get_table(*_table(at))
        return {}


def _failure(error: BigQueryError) -> Response:
    body = error.rest()
    status = max(error.status, 400)  # a cancelled job's results are an error, though the cancellation was none
    body["error"]["code"] = status
    return Response.json(body, status)


def _body(request: Request) -> dict[str, Any]:
    value = request.json()
    if not isinstance(value, dict):
        raise BigQueryError("badRequest", "Invalid JSON payload received. A JSON object is expected.")
    return value


def _job(job: Job) -> dict[str, Any]:
    resource = job.rest()
    if job.dry_run:
        del resource["jobReference"]["jobId"]
    path = f"projects/{job.key.project}/jobs/{job.key.job_id}?location={job.key.location}"
    return resource | {"selfLink": f"https://bigquery.googleapis.com/bigquery/v2/{path}"}


def _dataset(at: Mapping[str, str]) -> tuple[str, str]:
    return at["projectId"], at["datasetId"]


def _table(at: Mapping[str, str]) -> tuple[str, str, str]:
    return at["projectId"], at["datasetId"], at["tableId"]


def _job_path(request: Request, at: Mapping[str, str]) -> tuple[str, str, str | None]:
    return at["projectId"], at["jobId"], request.query.get("location") or None


def _timeout(value: Any) -> float:
    """Seconds to wait for a query; BigQuery answers after ten unless told otherwise."""
    milliseconds = _DEFAULT_TIMEOUT_MS if value in (None, "") else int(value)
    return min(max(milliseconds, 0), _MAX_TIMEOUT_MS) / 1000
