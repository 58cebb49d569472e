"""Cloud Storage on local disk: `StorageCore` is the semantics, `server.make_handler` the wire."""

from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError
from ingestd.localcloud.storage.state import StorageSettings

__all__ = ["StorageCore", "StorageError", "StorageSettings"]
