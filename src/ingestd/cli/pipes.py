"""Output that nobody reads any more: `ingestd settings | head` ends in silence, as other commands do."""

import os
import select
import sys

UNREAD = 141  # what a shell says of a command that SIGPIPE ended


def unread() -> bool:
    """Whether whoever read our output has left."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except (OSError, ValueError):  # closed, or no file
        return False


def discard() -> None:
    """Let what is still to be flushed go nowhere: Python flushes at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
