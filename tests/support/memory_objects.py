"""Cloud Storage for the readers and writers of the local BigQuery, in a dict."""

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject, matches


class MemoryObjects(Objects):
    """`Objects`, by their URIs."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self._objects: dict[str, tuple[int, bytes]] = {}
        self.content_types: dict[str, str] = {}
        self._generation = 0
        for uri, data in (contents or {}).items():
            self.write(uri, data, "application/octet-stream")

    def match(self, uri: str) -> list[SourceObject]:
        found = [uri] if uri in self._objects else []
        if "*" in uri:
            found = sorted(name for name in self._objects if matches(uri, name))
        return [SourceObject(name, len(self._objects[name][1]), self._objects[name][0]) for name in found]

    def read(self, uri: str) -> bytes:
        if uri not in self._objects:
            raise BigQueryError("notFound", f"Not found: URI {uri}", uri)
        return self._objects[uri][1]

    def write(self, uri: str, data: bytes, content_type: str) -> None:
        self._generation += 1
        self._objects[uri] = (self._generation, data)
        self.content_types[uri] = content_type
