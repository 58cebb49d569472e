"""The sliver of the XML API that clients use for reading: `GET /bucket/object`, with XML errors.

Public links and some client libraries fetch bytes this way. Everything else of the XML API is refused by name.
"""

from xml.sax.saxutils import escape

from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.errors import StorageError, not_found, unsupported
from ingestd.localcloud.storage.server.media import MediaRoutes
from ingestd.localcloud.storage.server.wire import Call, name_from_path

CODES = {403: "AccessDenied", 412: "PreconditionFailed", 416: "InvalidRange", 429: "SlowDown", 501: "NotImplemented"}
CONDITION_HEADERS = {
    "x-goog-if-generation-match": "ifGenerationMatch",
    "x-goog-if-metageneration-match": "ifMetagenerationMatch",
}


def xml_call(request: Request, media: MediaRoutes) -> Call:
    bucket, _, name = request.path.lstrip("/").partition("/")
    if not bucket:
        raise not_found()
    if request.method not in {"GET", "HEAD"} or not name:
        raise unsupported("the XML API beyond reading objects")
    for header, parameter in CONDITION_HEADERS.items():
        if header in request.headers:
            request.query[parameter] = request.headers[header]
    return media.download(request, name_from_path(bucket), name_from_path(name))


def xml_error(error: StorageError) -> Response:
    if error.status == 304:
        return Response(304)
    code = CODES.get(error.status, "InvalidArgument")
    if error.status == 404:
        code = "NoSuchBucket" if "bucket" in error.message.split(":")[0] else "NoSuchKey"
    body = (
        f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code>"
        f"<Message>{escape(error.message)}</Message></Error>"
    )
    return Response(error.status, body.encode(), {"content-type": "application/xml; charset=UTF-8"})
