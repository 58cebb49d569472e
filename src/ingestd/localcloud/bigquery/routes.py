"""The REST methods: verb, path and query parameters, once, for the router and for the discovery document.

`bq` builds its client from the discovery document, so a parameter missing here does not exist for it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

_STRING, _INTEGER, _BOOLEAN, _REPEATED = "string", "integer", "boolean", "repeated"
_PAGE = {"maxResults": _INTEGER, "pageToken": _STRING}
_DATASET = "projects/{projectId}/datasets/{datasetId}"
_TABLE = _DATASET + "/tables/{tableId}"


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    verb: str
    path: str
    query: Mapping[str, str]
    request: str = ""
    response: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        body = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        return re.compile(f"^/bigquery/v2/{body}$")


def _route(name: str, verb: str, path: str, query: Mapping[str, str] | None = None, *types: str) -> Route:
    request, response = (*types, "", "")[:2]
    return Route(name, verb, path, query or {}, request, response)


_RESULT_OPTIONS = {"formatOptions.useInt64Timestamp": _BOOLEAN, "startIndex": _STRING, **_PAGE}
_LOCATION = {"location": _STRING}

ROUTES = (
    _route("projects.list", "GET", "projects", _PAGE, "", "ProjectList"),
    _route("projects.getServiceAccount", "GET", "projects/{projectId}/serviceAccount", {}, "", "ServiceAccount"),
    _route("datasets.list", "GET", "projects/{projectId}/datasets", {"all": _BOOLEAN, "filter": _STRING, **_PAGE}, "",
           "DatasetList"),
    _route("datasets.insert", "POST", "projects/{projectId}/datasets", {"accessPolicyVersion": _INTEGER}, "Dataset",
           "Dataset"),
    _route("datasets.undelete", "POST", _DATASET + ":undelete", {}, "Undelete", "Dataset"),
    _route("datasets.get", "GET", _DATASET, {"accessPolicyVersion": _INTEGER, "datasetView": _STRING}, "", "Dataset"),
    _route("datasets.patch", "PATCH", _DATASET, {"accessPolicyVersion": _INTEGER, "updateMode": _STRING}, "Dataset",
           "Dataset"),
    _route("datasets.update", "PUT", _DATASET, {"accessPolicyVersion": _INTEGER, "updateMode": _STRING}, "Dataset",
           "Dataset"),
    _route("datasets.delete", "DELETE", _DATASET, {"deleteContents": _BOOLEAN}),
    _route("tables.list", "GET", _DATASET + "/tables", _PAGE, "", "TableList"),
    _route("tables.insert", "POST", _DATASET + "/tables", {}, "Table", "Table"),
    _route("tables.getIamPolicy", "POST", _TABLE + ":getIamPolicy", {}, "GetIamPolicyRequest", "Policy"),
    _route("tables.setIamPolicy", "POST", _TABLE + ":setIamPolicy", {}, "SetIamPolicyRequest", "Policy"),
    _route("tables.testIamPermissions", "POST", _TABLE + ":testIamPermissions", {}, "TestIamPermissionsRequest",
           "TestIamPermissionsResponse"),
    _route("tables.get", "GET", _TABLE, {"selectedFields": _STRING, "view": _STRING}, "", "Table"),
    _route("tables.patch", "PATCH", _TABLE, {"autodetect_schema": _BOOLEAN}, "Table", "Table"),
    _route("tables.update", "PUT", _TABLE, {"autodetect_schema": _BOOLEAN}, "Table", "Table"),
    _route("tables.delete", "DELETE", _TABLE),
    _route("tabledata.list", "GET", _TABLE + "/data", {"selectedFields": _STRING, **_RESULT_OPTIONS}, "",
           "TableDataList"),
    _route("tabledata.insertAll", "POST", _TABLE + "/insertAll", {}, "TableDataInsertAllRequest",
           "TableDataInsertAllResponse"),
    _route("jobs.list", "GET", "projects/{projectId}/jobs",
           {"allUsers": _BOOLEAN, "maxCreationTime": _STRING, "minCreationTime": _STRING, "parentJobId": _STRING,
            "projection": _STRING, "stateFilter": _REPEATED, **_PAGE}, "", "JobList"),
    _route("jobs.insert", "POST", "projects/{projectId}/jobs", {}, "Job", "Job"),
    _route("jobs.get", "GET", "projects/{projectId}/jobs/{jobId}", _LOCATION, "", "Job"),
    _route("jobs.cancel", "POST", "projects/{projectId}/jobs/{jobId}/cancel", _LOCATION, "", "JobCancelResponse"),
    _route("jobs.delete", "DELETE", "projects/{projectId}/jobs/{jobId}/delete", _LOCATION),
    _route("jobs.query", "POST", "projects/{projectId}/queries", {}, "QueryRequest", "QueryResponse"),
    _route("jobs.getQueryResults", "GET", "projects/{projectId}/queries/{jobId}",
           {"timeoutMs": _INTEGER, **_LOCATION, **_RESULT_OPTIONS}, "", "GetQueryResultsResponse"),
    _route("models.list", "GET", _DATASET + "/models", _PAGE, "", "ListModelsResponse"),
    _route("models.get", "GET", _DATASET + "/models/{modelId}", {}, "", "Model"),
    _route("models.patch", "PATCH", _DATASET + "/models/{modelId}", {}, "Model", "Model"),
    _route("models.delete", "DELETE", _DATASET + "/models/{modelId}"),
    _route("routines.list", "GET", _DATASET + "/routines", {"filter": _STRING, "readMask": _STRING, **_PAGE}, "",
           "ListRoutinesResponse"),
    _route("routines.insert", "POST", _DATASET + "/routines", {}, "Routine", "Routine"),
    _route("routines.get", "GET", _DATASET + "/routines/{routineId}", {"readMask": _STRING}, "", "Routine"),
    _route("routines.update", "PUT", _DATASET + "/routines/{routineId}", {}, "Routine", "Routine"),
    _route("routines.delete", "DELETE", _DATASET + "/routines/{routineId}"),
    _route("rowAccessPolicies.list", "GET", _TABLE + "/rowAccessPolicies", {"pageSize": _INTEGER, "pageToken": _STRING},
           "", "ListRowAccessPoliciesResponse"),
    _route("rowAccessPolicies.insert", "POST", _TABLE + "/rowAccessPolicies", {}, "RowAccessPolicy", "RowAccessPolicy"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    name: str
    arguments: Mapping[str, str]

    @property
    def resource(self) -> str:
        """What fault patterns match: the path's arguments joined by slashes."""
        return "/".join(self.arguments.values())


@cache
def _compiled() -> Mapping[str, list[tuple[re.Pattern[str], str]]]:
    by_verb: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for route in ROUTES:
        by_verb.setdefault(route.verb, []).append((route.pattern, route.name))
    return by_verb


def match(verb: str, path: str) -> Match | None:
    for pattern, name in _compiled().get(verb, ()):
        if found := pattern.match(path):
            return Match(name, {key: unquote(value) for key, value in found.groupdict().items()})
    return None


def discovery(root_url: str) -> dict[str, Any]:
    """A discovery document that client generators, `bq` among them, build a working client from."""
    resources: dict[str, Any] = {}
    schemas: set[str] = set()
    for route in ROUTES:
        resource, _, method = route.name.partition(".")
        path_names = re.findall(r"\{(\w+)\}", route.path)
        parameters = {name: {"type": _STRING, "required": True, "location": "path"} for name in path_names}
        for name, kind in route.query.items():
            repeated = kind == _REPEATED
            parameters[name] = {"type": _STRING if repeated else kind, "location": "query", "repeated": repeated}
        description: dict[str, Any] = {
            "id": f"bigquery.{route.name}",
            "path": re.sub(r"\{(\w+)\}", r"{+\1}", route.path),
            "httpMethod": route.verb,
            "parameters": parameters,
            "parameterOrder": path_names,
        }
        for key in ("request", "response"):
            if schema := getattr(route, key):
                description[key] = {"$ref": schema}
                schemas.add(schema)
        if route.name == "jobs.insert":
            description["supportsMediaUpload"] = True
            description["mediaUpload"] = _media(description["path"])
        resources.setdefault(resource, {"methods": {}})["methods"][method] = description
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": "bigquery:v2",
        "name": "bigquery",
        "version": "v2",
        "title": "BigQuery API",
        "description": "The local BigQuery of ingestd.",
        "protocol": "rest",
        "rootUrl": root_url,
        "baseUrl": f"{root_url}bigquery/v2/",
        "basePath": "/bigquery/v2/",
        "servicePath": "bigquery/v2/",
        "batchPath": "batch/bigquery/v2",
        "parameters": {
            name: {"type": _STRING, "location": "query"}
            for name in ("alt", "fields", "key", "oauth_token", "prettyPrint", "quotaUser", "uploadType", "userIp")
        },
        "schemas": {name: {"id": name, "type": "object"} for name in sorted(schemas)},
        "resources": resources,
    }


def _media(path: str) -> dict[str, Any]:
    return {
        "accept": ["*/*"],
        "protocols": {
            "simple": {"multipart": True, "path": f"/upload/bigquery/v2/{path}"},
            "resumable": {"multipart": True, "path": f"/resumable/upload/bigquery/v2/{path}"},
        },
    }
