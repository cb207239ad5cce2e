"""Hardware to compile for, which need not be here: what it is and how much it holds.

XLA's compilers need no device: libtpu compiles for any TPU slice, and the CUDA plugin
for any GPU that is described to it. `set_up` has to come before all imports of JAX.
"""

import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

GIB = 2**30
CPU = "cpu"


class Gpu(NamedTuple):
    """What XLA asks of a GPU before it compiles for it."""

    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    units: int  # float32 units in each of them
    clock: float  # GHz
    cache: int  # bytes of L2
    shared: int  # bytes of shared memory per core
    bandwidth: float  # bytes per second from memory


class Target(NamedTuple):
    """Devices to compile for."""

    name: str  # as the table has it
    groups: int  # hosts of GPUs, slices of TPUs
    shape: tuple[int, ...]  # of the devices in each
    memory: float  # bytes per device

    @property
    def devices(self) -> int:
        return self.groups * math.prod(self.shape)

    @property
    def platform(self) -> str:
        """As JAX names it when it lowers: "cpu", "cuda" or "tpu"."""
        if self.name == CPU:
            return CPU
        return "cuda" if self.name in GPUS else "tpu"

    def __str__(self) -> str:
        sizes = (self.groups, *self.shape)[self.groups == 1 :]
        return f"{self.name}:{'x'.join(map(str, sizes))}"


# Bytes per device, as the makers publish them.
MEMORY = {
    "a100": 80e9,
    "h100": 80e9,
    "b200": 180e9,
    "v5e": 16 * GIB,
    "v5p": 95 * GIB,
    "v6e": 32 * GIB,
}
_MIB, _KIB = 2**20, 2**10
GPUS = {
    "a100": Gpu((8, 0), 108, 64, 1.41, 40 * _MIB, 164 * _KIB, 2.039e12),
    "h100": Gpu((9, 0), 132, 128, 1.98, 50 * _MIB, 228 * _KIB, 3.35e12),
    "b200": Gpu((10, 0), 148, 128, 1.965, 126 * _MIB, 228 * _KIB, 7.7e12),
}
# A slice of TPUs, all of whose chips are on one host, and its axes.
HOSTS = {"v5e": (2, 2), "v5p": (2, 2, 1), "v6e": (2, 2)}


def parse(text: str, memory: float | None = None) -> Target:
    """The target that a text such as h100:8, h100:4x8, v5e:2x4 or cpu:8 names.

    `memory` replaces the bytes per device that its maker publishes.
    """
    name, _, layout = text.lower().partition(":")
    is_known = name in (CPU, *MEMORY)
    sizes = [int(n) for n in re.findall(r"\d+", layout)]
    axes = len(HOSTS.get(name, "1"))
    groups = sizes[:-axes] or [1]
    is_shape = re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", layout) and len(sizes) >= axes
    if not is_known or not is_shape or len(groups) > 1 or name == CPU and sizes[1:]:
        raise ValueError(
            f"--target is {text!r}; use a name and its devices, such as h100:8, "
            "h100:4x8 (hosts x devices), v5e:2x4, v5e:2x16x16 (slices x chips), "
            f"v5p:2x2x2 or cpu:8. Known are {', '.join((CPU, *MEMORY))}."
        )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    published = MEMORY.get(name, total / sizes[0])  # CPU devices share one machine
    return Target(name, groups[0], tuple(sizes[-axes:]), memory or published)


def set_up(targets: Sequence[Target]) -> None:
    """Gets JAX ready to compile for targets, or ValueError saying what to install.

    JAX itself stays on the CPU: nothing may look for a TPU or a GPU here.
    """
    platforms = {target.platform for target in targets}
    for platform, package in (("tpu", "libtpu"), ("cuda", "jax_cuda12_plugin")):
        if platform in platforms and importlib.util.find_spec(package) is None:
            raise ValueError(
                f"compiling for {platform} needs the package {package}, which is not "
                f"installed; pip install '.[compile-{platform}]' brings it. No device "
                "is needed."
            )
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "tpu" in platforms:
        # Else libtpu asks the metadata server of Google's cloud, and waits.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
        # Else it allows one process at a time, as if that had the chips.
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
        os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    if "cuda" in platforms:
        # Else XLA warns of programs that do not fit, which the table says.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    jax.config.update("jax_platforms", "cpu")  # where JAX was imported already
    if CPU in platforms:
        most = max(target.devices for target in targets if target.name == CPU)
        jax.config.update("jax_num_cpu_devices", most)


def mesh_devices(target: Target) -> list[Any]:
    """The devices; those that are not here can be compiled for and nothing else."""
    import jax
    from jax.experimental import topologies

    if target.platform == CPU:
        return jax.devices("cpu")[: target.devices]
    if target.platform == "tpu":
        # One chip is one of those of a whole host.
        shape = target.shape if math.prod(target.shape) > 1 else HOSTS[target.name]
        several = {"num_slices": target.groups} if target.groups > 1 else {}
        name = f"{target.name}:{'x'.join(map(str, shape))}"
        try:
            topology = topologies.get_topology_desc(name, "tpu", **several)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"libtpu does not describe the slice {name}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return list(topology.devices)[: target.devices]
    layout = f"1x{target.groups}x{target.shape[0]}"
    topology = topologies.get_topology_desc(
        "", "cuda", target_config=describe_gpu(target), topology=layout
    )
    return list(topology.devices)


def describe_gpu(target: Target) -> str:
    """A GPU as XLA's compiler wants it described: a `GpuTargetConfigProto` as text."""
    gpu = GPUS[target.name]
    major, minor = gpu.capability
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * _KIB}
  shared_memory_per_core: {gpu.shared}
  shared_memory_per_block_optin: {gpu.shared - _KIB}
  threads_per_core_limit: 2048
  core_count: {gpu.cores}
  fpus_per_core: {gpu.units}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
  registers_per_core_limit: {2**16}
  registers_per_block_limit: {2**16}
  memory_bandwidth: {int(gpu.bandwidth)}
  l2_cache_size: {gpu.cache}
  clock_rate_ghz: {gpu.clock}
  device_memory_size: {int(target.memory)}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "NVIDIA {target.name.upper()}"
"""
