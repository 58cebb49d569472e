"""A machine on which docs/deployment.md is typed: `gcloud`, `bq`, `kubectl`, … as they are found on its PATH.

What the local cloud can play is done by Google's own command lines against it. What only Google can do is checked (is
there such a command, with such flags?) and written down. `kubectl apply` renders the manifests with the real kubectl
and runs a real daemon with the settings in them; `kubectl exec` runs beside it. Called as `machine.py COMMAND …`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from gcloud_tables import mistakes, table_file  # type: ignore[import-not-found]

DESK = Path(os.environ.get("DESK", "."))  # where this machine keeps its notes
PATIENCE = 300.0  # only for what never happens
WRITER = "serviceAccount:p123456789012-1@gcp-sa-logging.iam.gserviceaccount.com"
ANSWERS = {
    ("projects", "describe"): "123456789012",
    ("logging", "sinks", "describe"): WRITER,
}
PLAYED = ("storage", "pubsub")


def main(command: str, arguments: list[str]) -> int:
    with (DESK / "typed.jsonl").open("a") as notes:
        notes.write(json.dumps([command, *arguments]) + "\n")
    known = {"gcloud": gcloud, "bq": bq, "kubectl": kubectl, "sleep": wait_for_the_file}
    return known.get(command, only_noted)(arguments)


def only_noted(_: list[str]) -> int:
    return 0


def gcloud(arguments: list[str]) -> int:
    tables = table_file(beyond())
    assert tables is not None
    if wrong := mistakes(arguments, tables):
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    if arguments[0] in PLAYED:
        return really("gcloud", *arguments)
    for words, answer in ANSWERS.items():
        if tuple(arguments[: len(words)]) == words:
            print(answer)
    return 0


def bq(arguments: list[str]) -> int:
    statement = arguments[-1]
    if statement.startswith("GRANT"):
        wanted = r"GRANT `roles/bigquery\.data(Editor|Viewer)` ON SCHEMA \w+ TO 'serviceAccount:[\w@.-]+'"
        return 0 if re.fullmatch(wanted, statement) else 2
    return really("bq", "--oauth_access_token=local", "--headless=true", *arguments)


def really(command: str, *arguments: str) -> int:
    """The real command, further down the PATH."""
    return subprocess.run([real(command), *arguments], env={**os.environ, "PATH": beyond()}, check=False).returncode


def real(command: str) -> str:
    found = shutil.which(command, path=beyond())
    assert found is not None, command
    return found


def beyond() -> str:
    path = os.environ["PATH"].split(":")
    return ":".join(path[path.index(os.environ["STANDINS"]) + 1 :])


def kubectl(arguments: list[str]) -> int:
    words = arguments[2:] if arguments[0] == "-n" else arguments
    match words[0]:
        case "apply":
            return apply(words[words.index("-k") + 1])
        case "rollout":
            return rolled_out()
        case "exec":
            inside = [one.replace("/etc/ingestd", str(DESK / "etc")) for one in words[words.index("--") + 1 :]]
            return subprocess.run(inside, check=False).returncode
        case "create":
            return really("kubectl", *arguments, "--dry-run=client", "--output=yaml")
        case "port-forward":
            return 0
    print(f"this machine's kubectl cannot {words[0]}", file=sys.stderr)
    return 2


def apply(folder: str) -> int:
    done = subprocess.run([real("kubectl"), "kustomize", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    (DESK / "rendered.yaml").write_text(done.stdout)
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(done.stdout))
    [deployment] = [one for one in objects if one["kind"] == "Deployment"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    [name] = [one["configMap"]["name"] for one in volumes if one["name"] == "config"]
    [files] = [one["data"] for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name]
    (DESK / "etc").mkdir()
    for file, text in files.items():
        (DESK / "etc" / file).write_text(text)
    command = ["ingestd", "run", "--config", str(DESK / "etc/ingestd.yaml")]
    with (DESK / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    (DESK / "daemon.pid").write_text(str(daemon.pid))
    return 0


def rolled_out() -> int:
    import httpx  # only here: the page has fifty commands, and few ask anybody

    url = f"http://127.0.0.1:{os.environ['INGESTD_HTTP__PORT']}/readyz"

    def ready() -> bool:
        try:
            return httpx.get(url, trust_env=False, timeout=10).status_code == 200
        except httpx.HTTPError:
            return False

    return until(ready)


def wait_for_the_file(_: list[str]) -> int:
    """Twenty seconds are long on Google's cloud; on a busy machine it takes what it takes."""
    import httpx

    project = f"{os.environ['BIGQUERY_EMULATOR_HOST']}/bigquery/v2/projects/{os.environ['PROJECT']}"
    table = f"{project}/datasets/shop/tables/orders"
    return until(lambda: int(httpx.get(table, trust_env=False, timeout=10).json().get("numRows", 0)) > 0)


def until(done: Any) -> int:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if done():
            return 0
        time.sleep(0.2)
    print("it never happened", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
