"""Digests of files: right, kept, and never those of what a file was before."""

import hashlib
import os
import pathlib
import time

import pytest

from cloc_jax.data import content
from cloc_jax.runtime import environment, files


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(content, "_SETTLED_NS", -(10**18))  # keep at once
    return environment.cache_folder() / content.CACHE


def counted(monkeypatch):
    """How often a file is read and not looked up."""
    reads = []
    whole = hashlib.file_digest

    def read(file, name):
        reads.append(file.name)
        return whole(file, name)

    monkeypatch.setattr(hashlib, "file_digest", read)
    return reads


def test_digest_is_sha256_of_all_bytes(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"x" * 10**6)
    assert content.digest(file) == hashlib.sha256(b"x" * 10**6).hexdigest()


def test_known_file_is_not_read_again(tmp_path, monkeypatch):
    reads = counted(monkeypatch)
    files = [tmp_path / f"{i}.png" for i in range(5)]
    for i, file in enumerate(files):
        file.write_bytes(bytes([i]) * 100)
    first = content.digests(files)
    assert first == [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]
    assert len(reads) == 5
    assert content.digests(files) == first and len(reads) == 5


def test_change_that_hides_behind_size_and_time_is_noticed(tmp_path):
    """Same name, size and time of change: only the content differs."""
    file = tmp_path / "a.png"
    file.write_bytes(b"before")
    status = file.stat()
    first = content.digest(file)
    time.sleep(0.02)  # the kernel's clock ticks every few milliseconds
    file.write_bytes(b"after!")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert content.digest(file) == hashlib.sha256(b"after!").hexdigest() != first


def test_file_that_just_changed_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_SETTLED_NS", 10**18)
    reads = counted(monkeypatch)
    file = tmp_path / "a.png"
    file.write_bytes(b"x")
    content.digest(file), content.digest(file)
    assert len(reads) == 2


def test_unreadable_files_have_no_digest_and_stop_nothing(tmp_path):
    good, fifo, link = (tmp_path / name for name in ("a.png", "b.png", "c.png"))
    good.write_bytes(b"x")
    os.mkfifo(fifo)
    link.symlink_to(tmp_path / "nowhere")
    found = content.digests([good, fifo, link, tmp_path / "missing"])
    assert found == [
        hashlib.sha256(b"x").hexdigest(),
        "unreadable NotRegularError",
        "unreadable FileNotFoundError",
        "unreadable FileNotFoundError",
    ]
    with pytest.raises(files.NotRegularError, match="named pipe"):
        content.digest(fifo)
    assert content.digests([good], max_bytes=1) == found[:1]
    good.write_bytes(b"xy")
    assert content.digests([good], max_bytes=1) == ["unreadable NotRegularError"]


@pytest.mark.parametrize("damage", [b"not a database", b""])
def test_damaged_cache_is_made_again(tmp_path, cache, damage, monkeypatch):
    file = tmp_path / "a.png"
    file.write_bytes(b"x")
    found = content.digest(file)
    cache.write_bytes(damage)
    assert content.digest(file) == found
    reads = counted(monkeypatch)
    assert content.digest(file) == found and not reads


def test_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    file = tmp_path / "a.png"
    file.write_bytes(b"x")
    assert content.digest(file) == hashlib.sha256(b"x").hexdigest()


def test_name_that_is_not_utf8(tmp_path):
    file = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    file.write_bytes(b"x")
    assert content.digests([file, file])[0] == hashlib.sha256(b"x").hexdigest()
