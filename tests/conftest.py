"""Settings for all tests: several CPU devices, and nothing that JAX lets slip."""

import importlib
import os
import pathlib
import tempfile

import chromium
import jax
import launching
import pytest

# Before JAX looks for its devices, which it does when it is first asked for one.
DEVICES = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("XLA_FLAGS", f"{DEVICES} {launching.QUICK}")

# Many tests compile the same small programs, in this process and in those they start.
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the folder of the first
    CACHE = tempfile.TemporaryDirectory(prefix="cloc_jax-tests-")
    os.environ["XDG_CACHE_HOME"] = CACHE.name
jax.config.update(
    "jax_compilation_cache_dir",
    str(pathlib.Path(os.environ["XDG_CACHE_HOME"], "cloc_jax")),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

LIBRARIES = (
    "beartype",
    "flax.nnx",
    "grain",
    "matplotlib.figure",
    "optax",
    "orbax.checkpoint",
    "rich.progress",
)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Imports libraries before our modules do.

    Within a module that jaxtyping checks, all they consist of would be compiled anew.
    """
    if not session.config.getoption("numprocesses"):  # else workers run the tests
        for name in LIBRARIES:
            importlib.import_module(name)


@pytest.fixture
def shared() -> pathlib.Path:
    """Folder with real data, where the environment has one."""
    if "CLOC_SHARED" not in os.environ:
        pytest.skip("CLOC_SHARED is not set: no real data on this machine")
    return pathlib.Path(os.environ["CLOC_SHARED"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says aloud what was not tested for want of a browser."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(chromium.MISSING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(
            f"!!! {chromium.MISSING} !!! Install chromium and chromium-driver.",
            red=True,
            bold=True,
        )
