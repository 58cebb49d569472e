"""The syntax tree of GoogleSQL: expressions and queries, and the statements around them."""

from ingestd.googlesql.ast.queries import *  # noqa: F403 - a module is a list of nodes, all of them its face
from ingestd.googlesql.ast.statements import *  # noqa: F403
