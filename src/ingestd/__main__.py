"""`python -m ingestd` is the `ingestd` command."""

from ingestd.cli.main import app

if __name__ == "__main__":
    app(prog_name="ingestd")
