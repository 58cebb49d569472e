"""The `ingestd` command, also as `python -m ingestd`: from its first import on, Ctrl-C ends it without a traceback."""

import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from ingestd.cli import pipes

        try:
            _run()
            sys.stdout.flush()  # here, where it may fail in silence
        except (BrokenPipeError, SystemExit):
            if not pipes.unread():
                raise
            pipes.discard()
            raise SystemExit(pipes.UNREAD) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _run() -> None:
    from ingestd.cli.main import app

    app(prog_name="ingestd")


if __name__ == "__main__":
    main()
