"""The same worlds and daemons as for individual files."""

from tests.e2e.daemon.conftest import fork_server, new_world, world

__all__ = ["fork_server", "new_world", "world"]
