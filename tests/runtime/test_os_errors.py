"""Errors of the operating system as one sentence with the file and the way out."""

import errno
import os
import pathlib

import pytest

from cloc_jax.runtime import errors


@pytest.mark.parametrize("number", [*errors.ADVICE, errno.ECONNRESET])
def test_a_sentence_has_the_file_and_the_systems_words(number):
    said = errors.sentence(OSError(number, os.strerror(number), "/data/x.png"))
    assert said.startswith(f"/data/x.png: {os.strerror(number)}.")
    assert "\n" not in said and errors.ADVICE.get(number, "") in said


def test_what_libraries_wrap_is_found():
    text = "INTERNAL: Error writing: [OS error 28: ENOSPC No space left on device]"
    assert errors.sentence(RuntimeError(text)).startswith("No space left on device")
    try:
        try:
            raise PermissionError(errno.EACCES, "no", "/data")
        except PermissionError as cause:
            raise RuntimeError("a library gave up") from cause
    except RuntimeError as error:
        assert errors.sentence(error).startswith("/data: Permission denied.")
    assert errors.sentence(ValueError("shapes differ")) == ""


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 B")],
)
def test_too_little_memory_is_a_sentence(error):
    assert "use smaller batches" in errors.sentence(error)


def test_an_error_that_names_a_file_goes_before_one_that_does_not():
    try:
        try:
            raise OSError(errno.ENOSPC, "full", "/run/checkpoints/3")
        except OSError:
            raise OSError(errno.ENOSPC, "full")  # noqa: B904
    except OSError as error:
        assert errors.sentence(error).startswith("/run/checkpoints/3: ")


def test_writing_names_its_file_and_its_kind():
    with pytest.raises(OSError) as caught, errors.naming("/run/history.jsonl"):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.filename == "/run/history.jsonl"
    with pytest.raises(OSError) as caught, errors.naming(pathlib.Path("/run/7")):
        raise ValueError("Error writing [OS error 28: No space left on device]")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/run/7")
    with pytest.raises(ValueError, match="shapes"), errors.naming("/run/7"):
        raise ValueError("shapes differ")


def test_places_that_cannot_be_written_are_found_first(tmp_path):
    errors.check_writable(tmp_path / "not" / "yet" / "there", "--run")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="--run=.*Not a directory.*another path"):
        errors.check_writable(tmp_path / "file" / "run", "--run")
    with pytest.raises(OSError, match="--output=/proc/run/x.csv cannot be written"):
        errors.check_writable(pathlib.Path("/proc/run/x.csv"), "--output")
