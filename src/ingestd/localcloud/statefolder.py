"""The folder a local cloud lives in: who holds it, on which ports it was last, and where clients find it.

Invariants: at most one live process holds the folder (a kernel lock, gone with its holder however it dies);
`endpoints.json` appears when the services answer and disappears before they are started again, with `daemon.json`, in
which a daemon of this folder says where it answers; these and `env.sh` are replaced whole, so a reader never sees half.
Commands read it where the local cloud is not installed: nothing of
its extra is imported here.
"""

import fcntl
import os
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import orjson

from ingestd.model.errors import Fatal

LOOPBACK = "127.0.0.1"
ENDPOINTS_FILE = "endpoints.json"
DAEMON_FILE = "daemon.json"
ENVIRONMENT_FILE = "env.sh"
BQ_FILE = "bigqueryrc"
_LOCK_FILE = "lock"
_PORTS_FILE = "ports.json"
_LOCK_PATIENCE_SECONDS = 1.0  # a predecessor that was just killed may need a moment to vanish


class StateFolderError(Fatal):
    """The folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports to listen on; 0 means the one of the last run when it is still free, any other otherwise."""

    storage: int = 0
    pubsub: int = 0
    bigquery: int = 0
    pubsub_rest: int = 0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the three services answer: `http://host:port`, for gRPC `host:port`."""

    storage: str
    pubsub: str
    bigquery: str
    pubsub_rest: str
    project: str

    @classmethod
    def on(cls, ports: Ports, project: str) -> "Endpoints":
        return cls(
            storage=f"http://{LOOPBACK}:{ports.storage}",
            pubsub=f"{LOOPBACK}:{ports.pubsub}",
            bigquery=f"http://{LOOPBACK}:{ports.bigquery}",
            pubsub_rest=f"http://{LOOPBACK}:{ports.pubsub_rest}",
            project=project,
        )

    @classmethod
    def load(cls, folder: Path) -> "Endpoints":
        """The endpoints a cloud wrote into its state folder."""
        file = folder / ENDPOINTS_FILE
        try:
            return cls(**orjson.loads(file.read_bytes()))
        except FileNotFoundError:
            raise StateFolderError(f"no local cloud has run in {folder}: start one with `ingestd cloud`") from None
        except (ValueError, TypeError) as error:
            raise StateFolderError(f"{file} is not an endpoints file: {error}") from error

    @property
    def ports(self) -> Ports:
        return Ports(**{field.name: int(getattr(self, field.name).rpartition(":")[2]) for field in fields(Ports)})

    def environ(self) -> dict[str, str]:
        """The variables that send Google's libraries and command lines here."""
        return {
            "STORAGE_EMULATOR_HOST": self.storage,
            "PUBSUB_EMULATOR_HOST": self.pubsub,
            "BIGQUERY_EMULATOR_HOST": self.bigquery,
            "GOOGLE_CLOUD_PROJECT": self.project,
            "CLOUDSDK_CORE_PROJECT": self.project,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{self.storage}/storage/v1/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"{self.pubsub_rest}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_BIGQUERY": f"{self.bigquery}/",
        }

    def save(self, folder: Path) -> None:
        _replace(folder / BQ_FILE, f"api = {self.bigquery}\nproject_id = {self.project}\n".encode())
        environ = {**self.environ(), "BIGQUERYRC": str((folder / BQ_FILE).absolute())}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in environ.items()]
        _replace(folder / ENVIRONMENT_FILE, ("\n".join(lines) + "\n").encode())
        _replace(folder / _PORTS_FILE, orjson.dumps(asdict(self.ports)) + b"\n")
        # Last, since whoever waits for a cloud waits for this file.
        _replace(folder / ENDPOINTS_FILE, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n")


def announce_daemon(folder: Path, url: str) -> None:
    """Say where the daemon of this folder answers; empty: there is none any more."""
    if url:
        _replace(folder / DAEMON_FILE, orjson.dumps({"url": url}) + b"\n")
    else:
        (folder / DAEMON_FILE).unlink(missing_ok=True)


def announced_daemon(folder: Path) -> str:
    """What was said last; a daemon that was killed could not take it back."""
    try:
        return str(orjson.loads((folder / DAEMON_FILE).read_bytes())["url"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _replace(file: Path, data: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(file)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder for this process, or explain who has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StateFolderError(f"cannot use the state folder {folder}: {error.strerror}") from error
    try:
        _lock(descriptor, folder)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        (folder / ENDPOINTS_FILE).unlink(missing_ok=True)
        announce_daemon(folder, "")
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
            raise StateFolderError(
                f"another local cloud (process {holder}) uses {folder}: stop it, or choose another --state folder"
            ) from None
        return


def settle(wanted: Ports, folder: Path) -> Ports:
    """The ports to bind: those wanted, else those of the last run that are still free, else 0 for any."""
    try:
        last = Ports(**orjson.loads((folder / _PORTS_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        last = Ports()
    taken = {port for port in asdict(wanted).values() if port}
    chosen = {}
    for name, port in asdict(wanted).items():
        before = getattr(last, name)
        chosen[name] = port or (before if before and before not in taken and _free(before) else 0)
    return Ports(**chosen)


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
