"""`ingestd load` against a local cloud: a folder becomes rows, once."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from typer.testing import CliRunner, Result

from ingestd.cli.main import app

pytestmark = pytest.mark.usefixtures("emulators")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five files, one of them further down, and one that is no data."""
    source = tmp_path / "data"
    (source / "more").mkdir(parents=True)
    for number in range(4):
        (source / f"part{number}.json").write_text(json.dumps({"id": number, "name": f"n{number}"}))
    (source / "more" / "last.json").write_text('{"id": 9, "name": "z"}')
    (source / ".hidden.json").write_text("{}")
    return source


@pytest.fixture
def ops(storage_client: Any, unique: str) -> str:
    """A journal of one's own, and a place for copies."""
    storage_client.create_bucket(f"{unique}-load")
    return f"{unique}-load"


def load(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["load", *arguments])


def account(result: Result) -> dict[str, Any]:
    assert result.stdout, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def count(bigquery_client: Any, table: str) -> int:
    (row,) = bigquery_client.query_and_wait(f"SELECT COUNT(*) AS n FROM `{table}`")
    return int(row["n"])


def test_a_local_folder_loads_together_and_leaves_no_copies(
    folder: Path, dataset: str, ops: str, bigquery_client: Any, storage_client: Any
) -> None:
    table = f"{dataset}.things"
    result = load(str(folder), "--dest", table, "--autodetect", "--bucket", ops, "--ops", f"gs://{ops}/books", "--json")
    assert result.exit_code == 0, result.output
    done = account(result)
    assert (done["found"], done["loaded"], done["rows"], done["batches"]) == (5, 5, 5, 1)
    assert count(bigquery_client, table) == 5
    assert not [blob.name for blob in storage_client.list_blobs(ops, prefix="_adhoc_/")]
    assert (folder / "part0.json").exists(), "the user's own files are never touched"


def test_a_bucket_folder_is_loaded_once_however_often_it_is_asked(
    dataset: str, ops: str, bucket: str, bigquery_client: Any, storage_client: Any
) -> None:
    for number in range(3):
        blob = storage_client.bucket(bucket).blob(f"in/{number}.json")
        blob.upload_from_string(json.dumps({"id": number}))
    storage_client.bucket(bucket).blob("elsewhere/x.json").upload_from_string('{"id": 7}')
    table = f"{dataset}.once"
    arguments = [f"gs://{bucket}/in", "-d", table, "-a", "-S", ".json", "-i", f"gs://{ops}/books", "--json"]
    assert account(load(*arguments))["loaded"] == 3
    again = account(load(*arguments))
    assert (again["loaded"], again["loaded_before"], again["batches"]) == (0, 3, 0)
    storage_client.bucket(bucket).blob("in/3.json").upload_from_string('{"id": 3}')
    more = account(load(*arguments))
    assert (more["loaded"], more["loaded_before"]) == (1, 3)
    assert count(bigquery_client, table) == 4
    assert storage_client.bucket(bucket).blob("in/0.json").exists(), "sources in a bucket stay"


def counted(client: Any, table: str, wanted: int, what: str, process: "subprocess.Popen[str]") -> None:
    """Wait until the table has so many rows."""
    found = 0

    def there() -> bool:
        nonlocal found
        assert process.poll() is None, process.communicate()
        found = count(client, table)
        return found == wanted

    eventually(there, lambda: f"{what}: {found} of {wanted} rows")


def test_a_stream_takes_what_comes_and_tells_what_it_loaded_when_it_is_ended(
    folder: Path, dataset: str, ops: str, bucket: str, bigquery_client: Any, storage_client: Any
) -> None:
    """One of a bucket's folder, one of a local one, each ended by Ctrl-C."""
    remote, local = f"{dataset}.from_bucket", f"{dataset}.from_folder"
    for table in (remote, local):
        bigquery_client.query_and_wait(f"CREATE TABLE {table} (id INT64, name STRING)")
    long_ago = time.time() - 60
    for path in folder.rglob("*.json"):
        os.utime(path, (long_ago, long_ago))
    blobs = storage_client.bucket(bucket)
    blobs.blob("in/0.json").upload_from_string('{"id": 0}')
    books = f"gs://{ops}/books"
    sources = ([f"gs://{bucket}/in", "-d", remote], [str(folder), "-d", local, "-b", ops])
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "ingestd", "load", *one, "-S", ".json", "-i", books, "--stream", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for one in sources
    ]
    try:
        counted(bigquery_client, remote, 1, "the first file of the bucket", both[0])
        counted(bigquery_client, local, 5, "the first files of the folder", both[1])
        blobs.blob("in/1.json").upload_from_string('{"id": 1}')
        blobs.blob("in/0.json").upload_from_string('{"id": 10}')  # another generation is another file
        (folder / "late.json").write_text('{"id": 77, "name": "late"}')
        os.utime(folder / "late.json", (long_ago, long_ago))
        counted(bigquery_client, remote, 3, "later files of the bucket", both[0])
        counted(bigquery_client, local, 6, "a later file of the folder", both[1])
        for process in both:
            process.send_signal(signal.SIGINT)
        ends = [(process.communicate(timeout=500), process.returncode) for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    for (out, err), code in ends:
        assert (code, "Traceback" in err) == (0, False), err
        assert json.loads(out)["not_loaded"] == []
    done = [json.loads(out) for (out, _), _ in ends]
    assert [(one["found"], one["loaded"], one["rows"]) for one in done] == [(3, 3, 3), (6, 6, 6)]
    assert (count(bigquery_client, remote), count(bigquery_client, local)) == (3, 6)


def test_a_bad_file_is_named_and_the_others_load(folder: Path, dataset: str, ops: str, bigquery_client: Any) -> None:
    (folder / "broken.json").write_text('{"id": ')
    table = f"{dataset}.partly"
    bigquery_client.query_and_wait(f"CREATE TABLE {table} (id INT64, name STRING)")
    result = load(str(folder), "--dest", table, "--bucket", ops, "--ops", f"gs://{ops}/books", "--json")
    assert result.exit_code == 1
    done = account(result)
    assert (done["loaded"], [one["file"].rpartition("/")[2] for one in done["not_loaded"]]) == (5, ["broken.json"])
    assert count(bigquery_client, table) == 5


def test_a_refused_file_is_not_called_loaded_however_often_it_is_asked(
    dataset: str, ops: str, bucket: str, tmp_path: Path, bigquery_client: Any, storage_client: Any
) -> None:
    for name in ("a-b!.json", "fine.json"):
        storage_client.bucket(bucket).blob(f"x/{name}").upload_from_string('{"id": 1}')
    dest = f"Pattern: '/x/(.+)\\.json', Table: {dataset}.$Name, Parameters: [{{Name: Name, Expression: $1}}]"
    written = tmp_path / "rule.yaml"
    written.write_text(f"When: {{Prefix: /x/}}\nDisabled: true\nDest: {{{dest}, Schema: {{Autodetect: true}}}}\n")
    arguments = [f"gs://{bucket}/x", "--rule", str(written), "-i", f"gs://{ops}/books"]
    for number in range(2):
        result = load(*arguments, "--json")
        done = account(result)
        assert (done["loaded"], done["loaded_before"]) == (1 - number, number)
        (refused,) = done["not_loaded"]
        assert refused["file"].endswith("/a-b!.json") and "a-b!" in refused["why"]
        assert result.exit_code == 1, "not every file is loaded"
    assert count(bigquery_client, f"{dataset}.fine") == 1
    shown = load(*arguments)
    assert "1 files were loaded by an earlier run" in shown.stdout and "not loaded gs://" in shown.stdout


@pytest.mark.parametrize("together", [True, False])
def test_what_an_earlier_run_could_not_load_is_not_called_loaded(
    together: bool, dataset: str, ops: str, bucket: str, bigquery_client: Any, storage_client: Any
) -> None:
    bigquery_client.query_and_wait(f"CREATE TABLE {dataset}.t (id INT64)")
    storage_client.bucket(bucket).blob("in/bad.json").upload_from_string('{"id": ')
    storage_client.bucket(bucket).blob("in/good.json").upload_from_string('{"id": 1}')
    how = [] if together else ["--individually"]
    arguments = [f"gs://{bucket}/in", "-d", f"{dataset}.t", "-i", f"gs://{ops}/books", *how, "--json"]
    first, again = load(*arguments), load(*arguments)
    assert (first.exit_code, again.exit_code) == (1, 1), (first.output, again.output, first.exception)
    for result, before in ((first, 0), (again, 1)):
        done = account(result)
        assert (done["loaded"], done["loaded_before"]) == (1 - before, before)
        assert [one["file"].rpartition("/")[2] for one in done["not_loaded"]] == ["bad.json"]
        assert "JSON" in done["not_loaded"][0]["why"]
    assert count(bigquery_client, f"{dataset}.t") == 1


def test_rows_that_are_loaded_are_not_called_lost_when_an_action_fails(
    folder: Path, dataset: str, ops: str, tmp_path: Path
) -> None:
    written = tmp_path / "rule.yaml"
    written.write_text(
        f"""When: {{Prefix: /mine/}}
Batch: {{Window: {{DurationInSec: 3600}}}}
Dest: {{Table: {dataset}.kept, Schema: {{Autodetect: true}}}}
OnSuccess:
  - Action: query
    Request: {{SQL: SELEC 1}}
"""
    )
    arguments = [str(folder), "--rule", str(written), "-b", ops, "-i", f"gs://{ops}/books"]
    result = load(*arguments, "--json")
    done = account(result)
    assert (done["loaded"], done["not_loaded"], result.exit_code) == (5, [], 1)
    assert "SELEC" in done["unfinished"][0]["why"] or "Syntax" in done["unfinished"][0]["why"]
    again = account(load(*arguments, "--json"))
    assert (again["loaded"], again["loaded_before"], again["not_loaded"]) == (0, 5, [])


def test_a_group_is_finished_when_its_files_are(
    folder: Path, dataset: str, ops: str, tmp_path: Path, bigquery_client: Any
) -> None:
    """bqtail's case 051: the table is named after the group, and `OnDone` copies it."""
    bigquery_client.query_and_wait(f"CREATE TABLE {dataset}.dummy (id INT64, name STRING)")
    written = tmp_path / "rule.yaml"
    written.write_text(
        f"""When: {{Prefix: /data/case051/, Suffix: .json}}
Dest:
  Table: {dataset}.dummy_$GroupID
  Schema: {{Template: {dataset}.dummy}}
  Transient: {{Dataset: {dataset}}}
Batch:
  MultiPath: true
  Window: {{DurationInSec: 7200}}
  Group:
    DurationInSec: 7200
    OnDone:
      - Action: copy
        Request: {{Append: true, Source: {dataset}.dummy_$GroupID, Dest: {dataset}.dummy}}
OnSuccess:
  - Action: delete
"""
    )
    result = load(f"-r={written}", f"-s={folder}", f"-b={ops}", f"-i=gs://{ops}/books", "--json")
    assert result.exit_code == 0, result.output
    assert account(result)["loaded"] == 5
    assert count(bigquery_client, f"{dataset}.dummy") == 5


def test_a_dry_run_prints_the_rule_and_touches_nothing(
    folder: Path, dataset: str, ops: str, storage_client: Any
) -> None:
    table = f"{dataset}.x$20240501"
    result = load(str(folder), "-d", table, "-D", "id", "-b", ops, "-i", f"gs://{ops}/books", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "    UniqueColumns:\n    - id\n" in result.stderr
    assert f"→ {dataset}.x$20240501" in result.stdout
    assert "5 files" in result.stdout
    assert not list(storage_client.list_blobs(ops))


def test_what_blocks_is_said_holds_up_nobody_else_and_the_same_command_goes_on(
    folder: Path, unique: str, dataset: str, ops: str, bigquery_client: Any
) -> None:
    """The dataset does not exist yet."""
    arguments = [str(folder), "-d", f"{unique}_late.t", "-a", "-b", ops, "-i", f"gs://{ops}/books", "--patience", "1s"]
    blocked = load(*arguments)
    assert blocked.exit_code == 1
    assert f"{unique}_late" in blocked.stderr and "run the same command again to go on" in blocked.stderr
    assert f"waiting: dataset {bigquery_client.project}.{unique}_late does not exist" in blocked.stderr
    books = ["-b", ops, "-i", f"gs://{ops}/books"]
    other = account(load(str(folder), "-d", f"{dataset}.other", "-a", *books, "--patience", "1s", "--json"))
    assert (other["tables"], other["not_loaded"]) == ([f"{dataset}.other"], [])
    bigquery_client.create_dataset(f"{unique}_late")
    done = account(load(*arguments[:-2], "--patience", "30s", "--json"))
    assert done["rows"] == 5
    assert count(bigquery_client, f"{unique}_late.t") == 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dest", "a.b"], "what shall be loaded?"),
        (["nowhere", "--dest", "a.b"], "there is no file or folder nowhere"),
        (["."], "into which table?"),
        ([".", "--dest", "nodataset"], "--dest: "),
        ([".", "--dest", "a.b", "--rule", "no.yaml"], "there is no rule file no.yaml"),
        ([".", "--rule", "odd.yaml"], "error: odd.yaml:1:1: Whn: unknown key 'Whn'; did you mean 'When'?"),
        ([".", "--dest", "a.b", "-f", "EXCEL"], "SourceFormat"),
        ([".", "--dest", "a.b", "-w", "1m", "--individually"], "exclude each other"),
    ],
)
def test_a_mistake_is_said_at_once(arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_text("Whn: {}\nDest: {Table: a.b}\n")
    result = load(*arguments)
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


# Every command line of bqtail's README and of its command's, as they are written there. What they only name is put
# beside them: a folder, a file, rules here and in a bucket.
DOCUMENTED = [
    "-s=localSourceFolder -d='myproject:mydataset.mytable' -w=90 -p=myproject -V",
    "-s=localSourceFolder -d='myproject:mydataset.mytable' -w=90 -b=myGSBucket",
    "-s=localSourceFolder -r='myrule.yaml' -b=myGSBucket",
    "-s=gs://myBucket/folder -r='myrule.yaml'",
    "-s=gs://myBuckey/folder/mydatafile.csv -d='myProject:mydataset.mytable' -a  -V",
    "-s=gs://myBuckey/folder/mydatafile.csv -r=performance.yaml",
    "-r='myRuleURL -V' -p=myProject",
    "-s=mydatafile -d='myProject:mydataset.mytable' -V",
    "-r=gs://MY_CONFIG_BUCKET/BqTail/Rules/sys/bqjob.yaml -V",
    "-s=mydatafile -d='myProject:mydataset.mytable' -b=myGCSBucket",
    "-s=gs://myBuckey/folder/mydatafile.csv -d='myProject:mydataset.mytable'",
    "-s=mydatafile -r='myRuleURL'  -b=myGCSBucket",
    "-s=mylocaldatafolder -d='myProject:mydataset.mytable' -b=myGCSBucket",
    "-s=mylocaldatafolder -d='myProject:mydataset.mytable' -w=120  -b=myGCSBucket",
    "-s=mylocaldatafolder -r='myRuleURL' -X",
    "-s=mylocaldatafolder -d='myProject:mydataset.mytable' -w=120 -h=~/.bqtail",
    "-c=pathTo/custom.json -s=mydatafile -d='myProject:mydataset.mytable'",
    "-h",
]


@pytest.mark.parametrize("line", DOCUMENTED)
def test_a_command_line_of_bqtail_is_taken_as_it_is_written(
    line: str, dataset: str, ops: str, tmp_path: Path, monkeypatch: Any, bigquery_client: Any, storage_client: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("localSourceFolder/a.csv", "mylocaldatafolder/b.csv", "mydatafile"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("1,x\n")
    rule = f"When: {{Prefix: /folder/}}\nDest: {{Table: {dataset}.mytable, SourceFormat: CSV}}\n"
    for name in ("myrule.yaml", "performance.yaml", "myRuleURL"):
        Path(name).write_text(rule)
    stored = {"folder/mydatafile.csv": "1,x\n", "BqTail/Rules/sys/bqjob.yaml": rule}
    for name, text in stored.items():
        storage_client.bucket(ops).blob(name).upload_from_string(text)
    names = {"myproject": bigquery_client.project, "myProject": bigquery_client.project, "mydataset": dataset}
    names |= dict.fromkeys(("myGSBucket", "myGCSBucket", "myBucket", "myBuckey", "MY_CONFIG_BUCKET"), ops)
    for name, real in names.items():
        line = line.replace(name, real)
    result = load(*shlex.split(line), *([] if "-V" in line or line == "-h" else ["--dry-run"]))
    assert result.exit_code == 0, result.output
    if "-V" in line:
        assert "Rule is VALID" in result.stdout
    elif line != "-h":
        assert f"{dataset}.mytable" in result.stdout and "1 files" in result.stdout
    if "-w=" in line:
        assert f"DurationInSec: {90 if '-w=90' in line else 120}\n" in result.stderr


def test_flags_as_bqtail_writes_them_load_the_same_rows(
    folder: Path, dataset: str, ops: str, tmp_path: Path, bigquery_client: Any
) -> None:
    bigquery_client.query_and_wait(f"CREATE TABLE {dataset}.t (id INT64, name STRING)")
    books = f"-i=gs://{ops}/books"
    done = account(load(f"-s={folder}", f"-d={dataset}.t", "-w=3600", f"-b={ops}", "-S=.json", books, "--json"))
    assert (done["loaded"], done["not_loaded"]) == (5, [])
    bare = account(load("-s", str(folder), "-d", f"{dataset}.t", "-w", "3600", "-b", ops, "-l", "off", books, "--json"))
    assert bare["loaded"] == 5, "copies of local files go: the same files are loaded again"
    assert count(bigquery_client, f"{dataset}.t") == 10


def test_a_source_in_another_cloud_is_refused_with_what_to_do() -> None:
    result = load("-s=s3://myBucket/dataxx/", "-d=a.b", "-X")
    assert result.exit_code == 1
    assert "s3://myBucket/dataxx" in result.stderr and "Storage Transfer Service" in result.stderr


def test_a_rule_finds_the_files_beside_it(folder: Path, dataset: str, ops: str, bigquery_client: Any) -> None:
    rule = folder.parent / "rule.yaml"
    (folder.parent / "after.sql").write_text("SELECT COUNT(*) AS n FROM $DestTable")
    rule.write_text(
        f"""When: {{Prefix: /mine/, Suffix: .json}}
Batch: {{Window: {{DurationInSec: 3600}}}}
Dest: {{Table: {dataset}.things, Schema: {{Autodetect: true}}}}
OnSuccess:
  - {{Action: query, Request: {{SQLURL: after.sql, Dest: {dataset}.counted, Append: false}}}}
"""
    )
    result = load(str(folder), "--rule", str(rule), "-b", ops, "-i", f"gs://{ops}/books", "--json")
    assert result.exit_code == 0, result.output
    (row,) = bigquery_client.query_and_wait(f"SELECT n FROM {dataset}.counted")
    assert row["n"] == 5


def test_a_rule_file_is_validated_and_used(folder: Path, dataset: str, ops: str, tmp_path: Path) -> None:
    rule = tmp_path / "rule.yaml"
    dest = f"{{Table: {dataset}.ruled, Schema: {{Autodetect: true}}}}"
    rule.write_text(f"When: {{Prefix: /mine/, Suffix: .json}}\nAsync: true\nDest: {dest}\n")
    valid = load("--rule", str(rule), "--validate")
    assert "Rule is VALID" in valid.stdout
    result = load(str(folder), "--rule", str(rule), "-b", ops, "-i", f"gs://{ops}/books", "--json")
    assert result.exit_code == 0, result.output
    done = account(result)
    assert (done["loaded"], done["batches"], done["tables"]) == (5, 5, [f"{dataset}.ruled"])
