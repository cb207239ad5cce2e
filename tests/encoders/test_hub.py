"""Fetching by name, from a server in this process that answers as the hub does."""

import hashlib
import http.server
import socket
import threading
import time

import pytest
from launching import run_code

from cloc_jax.encoders.weights import download

NAME = "timm/resnet50.tv_in1k"
RESOLVE = f"/{NAME}/resolve/main/model.safetensors"
STORE = "/store/blob"
CONTENT = bytes(range(256)) * 300
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Answers by path: (status, headers, body); keeps what was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.requests, self.answers = [], {}
        self.serve()

    def serve(self, content=CONTENT, tag=SHA256, **headers):
        """As the hub: checksum in the redirection, bytes from another host."""
        linked = {
            "ETag": '"other"',
            "Location": f"http://localhost:{self.server_port}{STORE}",
            "X-HF-Warning": "topic; the library would print this",
            "X-Linked-Etag": f'"{tag}"',
            "X-Linked-Size": str(len(CONTENT)),
            "X-Repo-Commit": "c" * 40,
        }
        self.answers[RESOLVE] = (302, linked, b"moved")
        self.answers[STORE] = (200, headers, content)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        status, headers, body = self.server.answers.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    for variable in ("HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"no_proxy": "*", **download.SETTINGS}.items():
        monkeypatch.setenv(variable, value)
    import huggingface_hub

    huggingface_hub.close_session()  # it may have been made with a proxy
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


@pytest.fixture
def at_once(monkeypatch):
    """The library tries again without a pause, and waits but a moment for bytes."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.05)
    monkeypatch.setattr(time, "sleep", id)


def fetch(server, cache, name=NAME):
    return download.fetch(name, cache=cache, endpoint=server.address)


def fails(server, cache, message, name=NAME):
    """It says why in one line, and leaves nothing of the size of weights behind."""
    with pytest.raises(ValueError, match=message) as caught:
        fetch(server, cache, name)
    assert "\n" not in str(caught.value)
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert not [path for path in files if path.stat().st_size > 1000]


def test_fetches_once(server, tmp_path):
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert tmp_path / "hub" in path.parents
    server.requests.clear()
    assert fetch(server, tmp_path) == path
    assert server.requests == []
    path.write_bytes(b"damaged")
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_other_bytes_than_the_hub_states(server, tmp_path):
    server.serve(CONTENT[:-1] + b"!")
    fails(server, tmp_path, "do not match the hub's sha256; nothing was kept")


def test_a_broken_transfer(server, tmp_path, at_once):
    server.serve(CONTENT[:-7], **{"Content-Length": str(len(CONTENT))})
    fails(server, tmp_path, "was not downloaded .*nothing was kept")


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "timm/vgg16"), (401, "HF_TOKEN"), (403, "HF_TOKEN"), (500, "try again")],
)
def test_errors_of_the_hub(server, tmp_path, at_once, status, message):
    server.answers[RESOLVE] = (status, {}, b"sorry")
    fails(server, tmp_path, f"{NAME}.*{status}.*{message}")


def test_no_network(server, tmp_path, at_once):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        fails(server, tmp_path, "refused.*give its path")


def test_the_token_goes_to_the_hub_only(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    fetch(server, tmp_path)
    assert dict(server.requests) == {RESOLVE: "Bearer secret", STORE: None}


def test_late_import_and_one_line(server, tmp_path, monkeypatch):
    code = """
import pathlib, sys
from cloc_jax.encoders.weights import download, filling
assert "huggingface_hub" not in sys.modules
print(download.fetch(sys.argv[1], cache=pathlib.Path(sys.argv[2])).stat().st_size)
from huggingface_hub import constants
assert constants.HF_HUB_DISABLE_TELEMETRY and constants.HF_HUB_DISABLE_XET
"""
    for variable in download.SETTINGS:
        monkeypatch.delenv(variable)
    process = run_code(code, NAME, tmp_path, HF_ENDPOINT=server.address)
    said = f"  downloading {server.address}{RESOLVE}, once, into {tmp_path / 'hub'}\n"
    said += f"{len(CONTENT)}\n"
    assert (process.stdout, process.stderr) == (said, "")


@pytest.mark.parametrize(
    "name", ["resnet50", "a/b/c", "../b", "a/..", "a/b c", "/a/b", "a/b?c"]
)
def test_what_is_no_name(name):
    assert not download.is_name(name)
