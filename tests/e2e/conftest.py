"""A world per test, its daemons forked from one warm process, for all tests that run real ones."""

from tests.support.e2e.fixtures import fork_server, new_world, web, world

__all__ = ["fork_server", "new_world", "web", "world"]
