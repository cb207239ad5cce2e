"""Settings for all tests: several CPU devices, and nothing that JAX lets slip."""

import os
import pathlib

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture
def shared() -> pathlib.Path:
    """Folder with real data, where the environment has one."""
    if "CLOC_SHARED" not in os.environ:
        pytest.skip("CLOC_SHARED is not set: no real data on this machine")
    return pathlib.Path(os.environ["CLOC_SHARED"])
