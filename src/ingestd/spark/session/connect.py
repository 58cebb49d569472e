"""A session behind a Spark Connect server (`sc://`): no JVM of our own, everything goes over one gRPC channel.

Each call has a server-side session to itself (`Sessions`). The server decides about memory, cores and pools; SQL
settings that it lets a client change are set on every session.
"""

import logging
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ingestd.model.errors import Fatal
from ingestd.spark.session.connect_sessions import Sessions, end
from ingestd.spark.session.engine import Work
from ingestd.spark.session.failures import SessionLost, translate
from ingestd.spark.session.startup import Startup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODE = "SPARK_CONNECT_MODE_ENABLED"  # makes `pyspark.sql.functions` build expressions for Connect


class ConnectEngine:
    def __init__(self, url: str, options: Mapping[str, str], startup: Startup) -> None:
        self._url = url
        self._startup = startup
        self._by_tag: dict[str, Any] = {}
        self._stages: dict[str, tuple[int, int, int]] = {}  # operation → stages, tasks, tasks done
        self._lock = threading.Lock()
        self._closed = False
        self._sessions = Sessions(self._new_session, options)
        self.application = f"{url.partition(';')[0]} ({self._sessions.own.session_id})"

    @classmethod
    def open(cls, url: str, conf: Mapping[str, str], startup: Startup | None = None) -> "ConnectEngine":
        """Join the server; SQL settings of `conf` apply to every session on it."""
        try:
            import pyspark.sql.connect.session  # noqa: F401
        except ImportError as error:
            raise Fatal(f"spark.master {url} needs Spark Connect's client: pip install 'ingestd[connect]'") from error
        os.environ[_MODE] = "1"
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what it raises
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # so does this one
        try:
            options = {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
            return cls(url, options, startup or Startup())
        except BaseException:
            os.environ.pop(_MODE, None)
            raise

    def _new_session(self) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        session = RemoteSession(connection=self._url)
        self._startup.began(session.client.close)  # whoever waits for the server's first answer is freed by that
        # PySpark's own ten minutes of patience would hide a dead server from the heartbeat.
        session.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=2000)])
        session.client.register_progress_handler(self._progressed)  # type: ignore[arg-type]
        return session

    @property
    def session(self) -> "SparkSession":
        found: SparkSession = self._sessions.own
        return found

    @property
    def alive(self) -> bool:
        return not self._closed

    def last_words(self) -> str:
        return ""

    @contextmanager
    def tagged(self, tag: str, pool: str) -> Iterator["SparkSession"]:
        session = self._sessions.take()
        session.client.add_tag(tag)
        known = type(session)._active_session  # by thread: what PySpark asks to read the type of a Python function
        known.session = session
        with self._lock:
            self._by_tag[tag] = session
        failure: BaseException | None = None
        try:
            yield session
        except BaseException as error:
            failure = error
            raise
        finally:
            known.session = None
            session.client.remove_tag(tag)
            with self._lock:
                self._by_tag.pop(tag, None)
            if failure is not None and isinstance(translate(failure), SessionLost):
                self._sessions.drop(session, release=False)
            else:
                self._sessions.give_back(session, failed=failure is not None)

    def cancel(self, tag: str) -> None:
        with self._lock:
            session = self._by_tag.get(tag)
        if session is not None:
            session.client.interrupt_tag(tag)

    def beat(self) -> None:
        self._sessions.touch()

    def work(self) -> Work:
        with self._lock:
            running = list(self._stages.values())
            jobs = len(self._by_tag)
        return Work(
            jobs=min(jobs, len(running)),
            stages=sum(stages for stages, _, _ in running),
            tasks=sum(tasks for _, tasks, _ in running),
            tasks_done=sum(done for _, _, done in running),
        )

    def _progressed(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        known = list(stages or ())
        with self._lock:
            if done or operation_id is None:
                self._stages.pop(operation_id or "", None)
                return
            running = [stage for stage in known if not stage.done]
            self._stages[operation_id] = (
                len(running),
                sum(stage.num_tasks for stage in running),
                sum(stage.num_completed_tasks for stage in running),
            )

    def close(self) -> None:
        self._end(release=True)

    def kill(self) -> None:
        self._end(release=False)

    def _end(self, *, release: bool) -> None:
        """Close every channel: whoever waits on one is freed. Only a server that answers is asked to release."""
        self._closed = True
        os.environ.pop(_MODE, None)
        with self._lock:
            sessions = list(self._by_tag.values())
            self._by_tag.clear()
            self._stages.clear()
        for session in sessions:
            end(session, release=release)
        self._sessions.close(release=release)
