"""The `ingestd` command, also as `python -m ingestd`: from its first import on, Ctrl-C ends it without a traceback."""

INTERRUPTED = 130


def main() -> None:
    try:
        from ingestd.cli.main import app

        app(prog_name="ingestd")
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
