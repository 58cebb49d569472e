"""The composition root: settings in, a running daemon out."""

from ingestd.app.assembly import assemble
from ingestd.app.daemon import App
from ingestd.app.serve import build, serve

__all__ = ["App", "assemble", "build", "serve"]
