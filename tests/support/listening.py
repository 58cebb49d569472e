"""A server on loopback that does what it likes with its connections: what no well-behaved one can be made to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """The port; at the end, connections that are still served are cut."""
    served: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for task in served:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*served, return_exceptions=True)


async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A connection that lost its other side: nothing comes, and nothing is taken once the buffers are full."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def dripping(head: bytes, drop: bytes) -> Serve:
    """An answer whose bytes each come in time, and whose last one never does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        with suppress(OSError):
            while not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.02)

    return serve
