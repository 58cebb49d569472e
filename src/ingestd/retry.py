"""Trying again, with bounds: the one place that decides how often and how long.

Only `Transient` and rate-limiting `Throttled` are worth another attempt inside a call. A used-up daily quota, bad input
and missing permission are handed on at once: waiting here would only hold the caller.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TypeVar

import structlog
from prometheus_client import Counter, Histogram
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import Throttled, Transient

log = structlog.get_logger(__name__)

RETRIES = Counter("ingestd_retries", "Calls tried again, by operation and kind of failure.", ["operation", "kind"])
API_SECONDS = Histogram(
    "ingestd_api_seconds",
    "Seconds that one call of a Google service took, failed ones included; a pull waits for messages.",
    ["service", "method"],
    buckets=(0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one call may be repeated before its failure is handed to the caller."""

    attempts: int = 6
    total: timedelta = timedelta(minutes=2)
    first_wait: timedelta = timedelta(milliseconds=250)
    longest_wait: timedelta = timedelta(seconds=20)

    def wait(self, failures: int, share: float) -> timedelta:
        """The pause after that many failures: exponential, its second half drawn by `share` in [0, 1)."""
        whole = min(self.first_wait * float(2 ** min(failures - 1, 30)), self.longest_wait)
        return whole / 2 + whole / 2 * share


def worth_retrying(error: BaseException) -> bool:
    return isinstance(error, Transient) or (isinstance(error, Throttled) and not error.quota)


class Retrier:
    """Runs calls under one policy; time and chance are injected, so simulations repeat exactly."""

    def __init__(
        self, policy: RetryPolicy | None = None, clock: Clock | None = None, chance: random.Random | None = None
    ) -> None:
        self._policy = policy or RetryPolicy()
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not a secret

    async def call(
        self,
        fn: Callable[[], Awaitable[T]],
        operation: str,
        *,
        resource: str = "",
        policy: RetryPolicy | None = None,
    ) -> T:
        """Await `fn()` until it succeeds, fails for good, or the policy's bounds are reached (its error is raised)."""
        limits = policy or self._policy
        deadline = self._clock.monotonic() + limits.total.total_seconds()
        try:
            return await self._timed(fn, operation)
        except (Transient, Throttled) as error:
            first: list[Exception] = [error]
        # Nearly every call ends above, without paying for the machinery below.

        def wait(state: RetryCallState) -> float:
            error = _error_of(state)
            if isinstance(error, Throttled) and error.until is not None:
                return max((error.until - self._clock.now()).total_seconds(), 0.0)
            return limits.wait(state.attempt_number, self._chance.random()).total_seconds()

        def stop(state: RetryCallState) -> bool:
            # tenacity computes the wait first: a pause that ends past the deadline is not begun
            return state.attempt_number >= limits.attempts or self._clock.monotonic() + state.upcoming_sleep > deadline

        def report(state: RetryCallState) -> None:
            error = _error_of(state)
            kind = "throttled" if isinstance(error, Throttled) else "transient"
            RETRIES.labels(operation, kind).inc()
            log.warning(
                "call.retried",
                operation=operation,
                resource=resource,
                kind=kind,
                attempt=state.attempt_number,
                wait_seconds=round(state.upcoming_sleep, 3),
                error=str(error),
            )

        async def sleep(seconds: float) -> None:
            await self._clock.sleep(timedelta(seconds=seconds))

        attempts = AsyncRetrying(
            retry=retry_if_exception(worth_retrying),
            wait=wait,
            stop=stop,
            sleep=sleep,
            before_sleep=report,
            reraise=True,
        )

        async def attempt() -> T:
            if first:
                raise first.pop()
            return await self._timed(fn, operation)

        return await attempts(attempt)

    async def _timed(self, fn: Callable[[], Awaitable[T]], operation: str) -> T:
        began = self._clock.monotonic()
        try:
            return await fn()
        finally:
            _seconds_of(operation).observe(self._clock.monotonic() - began)


@cache
def _seconds_of(operation: str) -> Histogram:
    """Operations are written in the code ("storage.create"): as labels they are few."""
    service, _, method = operation.partition(".")
    return API_SECONDS.labels(service, method)


def _error_of(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
