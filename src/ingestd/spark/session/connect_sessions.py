"""Sessions on a Spark Connect server, each used by one call after another.

A call has a session to itself: that keeps its views apart, and is what an interrupt reaches. Making one per call would
be simpler, but the server gives every session Python workers of its own, for which the call waits seconds, and keeps
their parent process until it ends itself: a process for every batch. So a session is cleaned after its call and given
to the next one; there are never more than calls have run at once.

What stays true:
- A session is in one call at a time, and nothing of an earlier call runs in it.
- A call finds the settings, the current database and the temporary views of a new session.
- A session that cannot be cleaned, or holds too much of what was sent to it, is ended.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

HELD_BYTES = 256 << 20  # rows that were sent (side inputs): the server keeps them as long as their session
_VIEWS = "SHOW VIEWS IN spark_catalog.global_temp"  # those of the session, too, and no metastore is asked


class Sessions:
    def __init__(self, make: Callable[[], Any], options: Mapping[str, str]) -> None:
        """`make` opens a session on the server; `options` are SQL settings that every one of them has."""
        self._make = make
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._held: dict[str, dict[str, int]] = {}  # session → what it holds, by hash → bytes
        self._closed = False
        self.own = make()  # answers questions, and is never in a call
        try:
            _ask(self.own)
            # A static setting is the server's to choose.
            self._options = {name: value for name, value in options.items() if self.own.conf.isModifiable(name)}
            self._settle(self.own)
        except BaseException:
            end(self.own, release=False)
            raise

    def _settle(self, session: Any) -> None:
        if self._options:
            session.conf._set_all(self._options, silent=False)  # one request for all of them

    def take(self) -> Any:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        session = self._make()
        try:
            self._settle(session)
        except BaseException:
            end(session, release=False)
            raise
        self._weigh(session)
        return session

    def _weigh(self, session: Any) -> None:
        """Note what is sent to the session besides plans."""
        held = self._held.setdefault(session.session_id, {})
        send = session.client.cache_artifacts

        def noted(blobs: list[bytes]) -> list[str]:
            hashes: list[str] = send(blobs)
            held.update(zip(hashes, map(len, blobs), strict=True))
            return hashes

        session.client.cache_artifacts = noted

    def give_back(self, session: Any, *, failed: bool) -> None:
        """The call is over: let the next one have its session."""
        if sum(self._held.get(session.session_id, {}).values()) <= HELD_BYTES:
            with suppress(Exception):
                self._clean(session, failed=failed)
                with self._lock:
                    if not self._closed:
                        self._idle.append(session)
                        return
        self.drop(session, release=True)

    def _clean(self, session: Any, *, failed: bool) -> None:
        if failed:
            session.interruptAll()
            session.catalog.setCurrentCatalog(self.own.catalog.currentCatalog())
            session.catalog.setCurrentDatabase(self.own.catalog.currentDatabase())
        session.sql("RESET")
        self._settle(session)
        for view in session.sql(_VIEWS).collect():
            if not view.namespace:
                session.catalog.dropTempView(view.viewName)

    def drop(self, session: Any, *, release: bool) -> None:
        self._held.pop(session.session_id, None)
        end(session, release=release)

    def touch(self) -> None:
        """Returns when the server answers. A server forgets sessions that nobody asks for an hour."""
        _ask(self.own)
        with self._lock:
            idle = list(self._idle)
        for session in idle:
            try:
                _ask(session)
            except Exception:  # noqa: BLE001 - whatever it was, a new session will do
                with self._lock:
                    if session not in self._idle:
                        continue  # in a call meanwhile, which will notice by itself
                    self._idle.remove(session)
                self.drop(session, release=False)

    def close(self, *, release: bool) -> None:
        """Close every channel but those of calls; only a server that answers is asked to release."""
        with self._lock:
            self._closed = True
            sessions, self._idle = [*self._idle, self.own], []
        for session in sessions:
            self.drop(session, release=release)


def end(session: Any, *, release: bool) -> None:
    session.release_session_on_close = release
    with suppress(Exception):  # a dead server has nothing to release
        session.stop()


def _ask(session: Any) -> None:
    session.client.get_configs("spark.sql.session.timeZone")
