"""Long computations beside the event loop, which has leases to renew and probes to answer.

A thread costs more than a small computation, and simulations have none: what is small is computed at once.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def aside(heavy: bool, compute: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `compute` answers: from a thread when it is heavy. It must share nothing that the event loop changes."""
    return await asyncio.to_thread(compute, *args, **kwargs) if heavy else compute(*args, **kwargs)
