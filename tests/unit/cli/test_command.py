"""The command line itself: help, errors, exit codes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT
from typer.testing import CliRunner

import ingestd
from ingestd.cli import local, terminal
from ingestd.cli.commands import COMMANDS as LATE
from ingestd.cli.errors import CommandError
from ingestd.cli.files import show_rows
from ingestd.cli.main import app
from ingestd.localcloud.statefolder import Endpoints, Ports

COMMANDS = ["demo", "local", "cloud", "faults", "run", "rules", "doctor", "settings", "version"]
COMMANDS += ["schema", "load", "cp", "query", "publish"]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """A terminal wide enough not to wrap, in an empty folder, with no cloud in its environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("STORAGE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "BIGQUERY_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def test_help_lists_every_command(runner: CliRunner) -> None:
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in shown.output


# What typer itself draws help with. Anything else is imported by the command that needs it, when it runs.
FOR_HELP = {"annotated_doc", "attr", "ingestd", "markdown_it", "mdurl", "pygments", "rich", "shellingham", "typer"}
FOR_ARGUMENTS = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
FOR_RULES = {"cython_runtime", "orjson", "re2", "yaml"}
OURS_AT_ALL = (
    r"ingestd(\.__main__|\.cli(\.(main|commands|bqtail_flags|errors|pipes|terminal|version))?|\.model(\.errors)?)?"
)
OURS_FOR_RULES = r"ingestd\.(cli\.(rules|where)|model\.unknown_keys)"


def imported(*arguments: str) -> set[str]:
    """What the command imports, beside Python's own, and what Debian adds to every start of it."""
    code = (
        "import sys\nfrom ingestd.__main__ import main\n"
        "try:\n    main()\nfinally:\n    sys.stderr.write(' '.join(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    python = {*sys.stdlib_module_names, "sitecustomize", "apport_python_hook"}
    return {name for name in ended.stderr.split() if name.partition(".")[0] not in python}


def strangers(loaded: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded if not name.startswith(("_", "ingestd"))}


@pytest.mark.parametrize("arguments", [["--help"], ["rules", "lint", "--help"], ["--version"]])
def test_help_imports_nothing_that_takes_its_time(arguments: list[str]) -> None:
    loaded = imported(*arguments)
    below = len(arguments) > 1
    assert strangers(loaded) <= FOR_HELP | (FOR_ARGUMENTS if below else set())
    ours = re.compile(f"{OURS_AT_ALL}|{OURS_FOR_RULES}" if below else OURS_AT_ALL)
    assert {name for name in loaded if name.startswith("ingestd") and not ours.fullmatch(name)} == set()


def test_checking_rules_imports_no_client_and_no_engine() -> None:
    loaded = imported("rules", "lint", str(ROOT / "config/rules"))
    assert strangers(loaded) <= FOR_HELP | FOR_ARGUMENTS | FOR_RULES
    for room in ("gcp", "localcloud", "batch", "windows", "warehouse", "settings", "app", "cli.local", "cli.load"):
        assert not {name for name in loaded if name.startswith(f"ingestd.{room}")}


@pytest.mark.parametrize("name", LATE)
def test_the_line_of_a_command_is_its_own(name: str) -> None:
    command = LATE[name].load(name)
    assert command.name == name
    assert command.help.partition("\n")[0] == LATE[name].help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(runner: CliRunner, command: str) -> None:
    shown = runner.invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.output


def test_a_shell_is_told_how_to_complete_commands(runner: CliRunner) -> None:
    environ = {"_INGESTD_COMPLETE": "complete_bash", "COMP_WORDS": "ingestd ru", "COMP_CWORD": "1"}
    shown = runner.invoke(app, [], prog_name="ingestd", env=environ)
    assert set(shown.stdout.split()) == {"run", "rules"}


def test_python_dash_m_is_the_same_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "ingestd", "version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ingestd {ingestd.__version__}\n"


def test_the_version_is_also_an_option(runner: CliRunner) -> None:
    shown = runner.invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"ingestd {ingestd.__version__}\n")


@pytest.mark.parametrize("arguments", ["settings", "settings --json", "rules show {rules}", "--help"])
def test_a_reader_who_has_read_enough_hears_nothing_of_a_broken_pipe(arguments: str) -> None:
    rules = ROOT / "config" / "rules"
    command = [sys.executable, "-m", "ingestd", *arguments.format(rules=rules).split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (1, 141)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["query", "SELECT 1"], "which cloud? Start a local one"),
        (["query", "SELECT 1", "--state", "nowhere"], "no local cloud has run in nowhere"),
        (["faults", "list"], "start one with `ingestd cloud`"),
        (["explain", "orders/1.json"], "not a gs:// URL: 'orders/1.json'"),
        (["cp", "nowhere.json", "gs://bucket/"], "there is no file nowhere.json"),
        (["cp", ".", "gs://bucket/"], ". is a folder; name its files"),
        (["query", " "], "there is no SQL to run"),
        (["run"], "environment: project: required key 'project' is missing"),
    ],
)
def test_a_mistake_is_one_readable_line_and_a_failing_exit_code(
    runner: CliRunner, arguments: list[str], complaint: str
) -> None:
    shown = runner.invoke(app, arguments)
    assert shown.exit_code == 1
    assert complaint in shown.stderr
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1
    assert "Traceback" not in shown.output


def test_what_a_table_holds_is_shown_as_it_is() -> None:
    with terminal.output.capture() as shown:
        show_rows([{"[red]a": "[bold]x[/bold]"}, {"[red]a": "[/]"}])
    assert all(text in shown.get() for text in ("[red]a", "[bold]x[/bold]", "[/]"))


def test_a_cloud_that_is_not_running_is_named_at_once(runner: CliRunner) -> None:
    """Clients would go on trying for minutes."""
    Endpoints.on(Ports(storage=1, pubsub=1, bigquery=1, pubsub_rest=1), "play").save(Path())
    shown = runner.invoke(app, ["query", "SELECT 1", "--state", "."])
    assert shown.exit_code == 1
    assert "the local cloud of . is not running: start it with" in shown.stderr


def test_an_emulator_that_does_not_answer_is_named_at_once(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", "http://127.0.0.1:1")
    (tmp_path / "settings.yaml").write_text("project: play\n")
    for arguments in (["query", "SELECT 1"], ["explain", "gs://b/o", "--config", "settings.yaml"]):
        shown = runner.invoke(app, arguments)
        assert shown.exit_code == 1
        assert shown.stderr == (
            "error: nothing answers at http://127.0.0.1:1, which BIGQUERY_EMULATOR_HOST names: "
            "start it, or unset the variable\n"
        )


def test_an_installation_without_the_local_cloud_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['duckdb'] = None; from ingestd.cli.main import app; app()"
    command = [sys.executable, "-c", code, "cloud", "--state", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert shown.stderr == "error: the local cloud is not installed (no duckdb): pip install 'ingestd[local]'\n"


@pytest.mark.parametrize("arguments", [["cloud"], ["cloud", "--state", "x", "--job-latency", "soon"], ["nonsense"]])
def test_wrong_usage_exits_2(runner: CliRunner, arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


def test_debug_shows_where_an_error_came_from(runner: CliRunner) -> None:
    shown = runner.invoke(app, ["--debug", "query", "SELECT 1"])
    assert isinstance(shown.exception, CommandError)


def test_the_first_of_several_concurrent_failures_is_the_line_shown(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [CommandError("the real reason")])])

    monkeypatch.setattr(local, "_stay", fail)
    shown = runner.invoke(app, ["local", "--state", "x"])
    assert (shown.exit_code, shown.stderr) == (1, "error: the real reason\n")


def test_an_unexpected_failure_says_how_to_look_closer(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("[bold]oops[/]")

    monkeypatch.setattr(local, "_stay", fail)
    shown = runner.invoke(app, ["local", "--state", "x"])
    assert shown.exit_code == 70
    assert "unexpected ZeroDivisionError: [bold]oops[/]" in shown.stderr
    assert "--debug" in shown.stderr


def test_the_settings_page_is_what_the_command_prints(runner: CliRunner) -> None:
    page = ROOT / "docs" / "settings.md"
    shown = runner.invoke(app, ["settings"])
    assert shown.exit_code == 0
    assert page.read_text() == shown.output, "run: make docs"
