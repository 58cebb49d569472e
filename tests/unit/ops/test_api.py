"""The API's manners: pages, bounds, refusals, and who may ask."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from ingestd.ops.access import COOKIE, TokenFile
from ingestd.ops.api import Page
from ingestd.ops.http import OpsServer
from ingestd.settings import Settings


class Views:
    """Answers what it was asked."""

    def __getattr__(self, name: str) -> Any:
        async def view(*args: Any, **kwargs: Any) -> Any:
            if name == "batch":
                return None
            if name == "quotas":
                raise RuntimeError("broken view")
            page = args[0] if args else None
            if isinstance(page, Page):
                return page.of(range(1_000), lambda number: {"number": number, "query": page.query})
            return {"view": name, "asked": [*args, kwargs]}

        return view


async def status() -> dict[str, Any]:
    return {"ready": True}


class Asking:
    """A browser or a script, without a network in between."""

    def __init__(self, app: Any, peer: str = "127.0.0.1", host: str = "localhost") -> None:
        self._app = app
        self._peer = peer
        self._host = host
        self.cookies = httpx.Cookies()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, client=(self._peer, 1234))
            address = f"http://{self._host}"
            async with httpx.AsyncClient(transport=transport, base_url=address, cookies=self.cookies) as asking:
                answer = await asking.request(method, path, **options)
                self.cookies = asking.cookies
                return answer

        return asyncio.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


def client(*, peer: str = "127.0.0.1", host: str = "localhost", **options: Any) -> Asking:
    server = OpsServer("127.0.0.1", 0, ready=list, status=status, views=Views(), **options)
    return Asking(server._server.config.app, peer, host)


def test_a_list_is_answered_in_pages_that_lead_on() -> None:
    first = client().get("/api/v1/batches?limit=400").json()
    assert (first["total"], first["next"], len(first["items"])) == (1_000, 400, 400)
    last = client().get("/api/v1/batches?limit=400&offset=800").json()
    assert (last["next"], len(last["items"])) == (None, 200)


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("batches?limit=501", "limit must be a whole number from 1 to 500"),
        ("batches?limit=-1", "limit must be"),
        ("batches?limit=000000000001999", "limit must be"),
        pytest.param(f"batches?limit={'0' * 5_000}", "limit must be", id="more digits than Python reads"),
        ("batches?offset=x", "offset must be"),
        ("windows?sort=colour", "sort must be one of due, files"),
        ("series?minutes=99999", "minutes must be"),
        ("explain?path=/etc/passwd", "path must be gs://bucket/object"),
        ("explain?path=gs://bucket-alone", "path must be gs://bucket/object"),
    ],
)
def test_a_wrong_parameter_is_a_400_that_says_what_is_wrong(query: str, complaint: str) -> None:
    answer = client().get(f"/api/v1/{query}")
    assert answer.status_code == 400
    assert complaint in answer.json()["error"]


def test_what_is_unknown_is_a_404_and_a_broken_view_takes_nothing_with_it() -> None:
    asking = client()
    assert asking.get("/api/v1/batches/17").status_code == 404
    broken = asking.get("/api/v1/quotas")
    assert (broken.status_code, broken.json()) == (502, {"error": "RuntimeError: broken view"})
    assert asking.get("/api/v1/overview").status_code == 200


def test_nothing_can_be_changed() -> None:
    asking = client()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert asking.request(method, "/api/v1/batches").status_code == 405


@pytest.mark.parametrize("name", ["..%2fhttp.py", "%2e%2e/http.py", "index.html", "none.js", "..%2f..%2fsettings.py"])
def test_only_the_pages_own_assets_are_served(name: str) -> None:
    assert client().get(f"/page/{name}").status_code == 404


GUARDED = ["/", "/status", "/metrics", "/api/v1/overview", "/page/main.js"]


@pytest.mark.parametrize("path", GUARDED)
def test_a_token_guards_everything_but_the_probes(path: str) -> None:
    asking = client(token=lambda: "s3cret")
    refused = asking.get(path)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="ingestd"'
    assert asking.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert asking.get(path, headers={"Authorization": "bearer s3cret"}).status_code == 200
    for probe in ("/healthz", "/readyz"):
        assert asking.get(probe).status_code == 200


@pytest.mark.parametrize("path", GUARDED)
def test_without_a_token_only_the_daemons_own_machine_may_look(path: str) -> None:
    for peer, host in (
        ("10.4.0.7", "10.4.0.9:9090"),
        ("10.4.0.7", "localhost"),
        ("127.0.0.1", "rebound.example.com"),
        ("127.0.0.1", "[::1"),
    ):
        asking = client(peer=peer)
        refused = asking.get(path, headers={"Host": host, "X-Forwarded-For": "127.0.0.1"})
        assert refused.status_code == 403
        assert "http.token_file" in refused.text
        assert asking.get("/healthz").status_code == asking.get("/readyz").status_code == 200
    for peer, host in (("127.0.0.1", "127.0.0.1:9090"), ("::1", "[::1]:9090"), ("127.0.0.1", "localhost:9090")):
        assert client(peer=peer, host=host).get(path).status_code == 200


def test_metrics_are_open_where_the_settings_say_so() -> None:
    for token in (None, lambda: "s3cret"):
        asking = client(peer="10.4.0.7", host="10.4.0.9:9090", token=token, protect_metrics=False)
        assert asking.get("/metrics").status_code == 200
        assert asking.get("/status").status_code in (401, 403)


@pytest.mark.parametrize("path", GUARDED)
def test_what_is_guarded_is_told_by_the_path_that_is_routed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starlette once built `request.url` from whatever the Host header said: `x/healthz?` looked like a probe."""
    asking = client(token=lambda: "s3cret")
    for host in ("x/healthz?", "x/healthz#", "x/login?"):
        assert asking.get(path, headers={"Host": host}).status_code == 401
    monkeypatch.setattr(Request, "url", URL("http://x/healthz"))
    assert asking.get(path).status_code == 401


def test_a_session_is_proof_of_the_token_it_came_from() -> None:
    tokens = ["first"]
    asking = client(token=lambda: tokens[0])
    assert asking.post("/login", data={"token": "guess"}).status_code == 401
    admitted = asking.post("/login", data={"token": "first"})
    assert admitted.status_code == 303
    cookie = admitted.cookies[COOKIE]
    assert asking.get("/status").status_code == 200
    until, _, proof = cookie.partition(".")
    for forged in (f"{int(until) + 1}.{proof}", f"1.{proof}", "", "x", f"{until}.{'0' * 64}"):
        asking.cookies = httpx.Cookies({COOKIE: forged})
        assert asking.get("/status").status_code == 401
    asking.cookies = httpx.Cookies({COOKIE: cookie})
    tokens[0] = "second"
    assert asking.get("/status").status_code == 401


def test_a_login_form_is_short() -> None:
    assert client(token=lambda: "t").post("/login", data={"token": "x" * 10_000}).status_code == 413


@pytest.mark.parametrize("token", ["", "  "])
def test_a_token_that_everybody_knows_is_refused(token: str) -> None:
    """A template without its value, say: an empty bearer would be let in, from everywhere."""
    with pytest.raises(ValueError, match=r"http\.token\s.*is empty"):
        Settings.model_validate({"project": "p", "http": {"token": token}})


def test_a_token_file_is_read_again_when_it_changes_and_must_not_be_empty(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  \n")
    with pytest.raises(ValueError, match="holds no token"):
        TokenFile(file)
    file.write_text("one\n")
    token = TokenFile(file)
    assert token() == "one"
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").rename(file)
    assert token() == "two"
    file.unlink()
    assert token() == "two", "a secret that is being replaced is gone for a moment"


def test_every_answer_tells_the_browser_how_little_it_may_do() -> None:
    for path in ("/", "/api/v1/overview", "/metrics", "/nowhere"):
        headers = client().get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
