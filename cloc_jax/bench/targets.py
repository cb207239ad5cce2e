"""Hardware to compile for, which need not be here: what it is and how much it holds.

XLA's compilers need no device: libtpu compiles for any TPU slice, and the CUDA plugin
for any GPU that is described to it. Nothing of JAX is imported before `set_up`, which
has to come first.
"""

import importlib.util
import math
import os
import re
from typing import Any, NamedTuple

GIB = 2**30
CPU = "cpu"
HOST_SIZE = 8  # GPUs per host, where only their number is given


# Shapes of TPU slices by number of chips; below 4, some chips of a whole host are used.
def _by_size(shapes: str) -> dict[int, str]:
    return {math.prod(map(int, s.split("x"))): s for s in shapes.split()}


_FLAT = _by_size("2x2 2x4 4x4 4x8 8x8 8x16 16x16")
_CUBES = _by_size("2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8")


class Gpu(NamedTuple):
    """What XLA asks of a GPU before it compiles for it."""

    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    units: int  # float32 units in each of them
    clock: float  # GHz
    cache: int  # bytes of L2
    shared: int  # bytes of shared memory per core
    bandwidth: float  # bytes per second from memory
    name: str


class Target(NamedTuple):
    """Devices to compile for."""

    name: str  # as the table has it
    groups: int  # hosts of GPUs, slices of TPUs
    per_group: int  # devices in each
    shape: str  # of a slice of TPUs
    memory: float  # bytes per device

    @property
    def devices(self) -> int:
        return self.groups * self.per_group

    @property
    def platform(self) -> str:
        """As JAX names it when it lowers: "cpu", "cuda" or "tpu"."""
        if self.name == CPU:
            return CPU
        return "cuda" if self.name in GPUS else "tpu"

    def __str__(self) -> str:
        if self.groups > 1:
            return f"{self.name}:{self.groups}x{self.shape or self.per_group}"
        return f"{self.name}:{self.shape or self.per_group}"


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
    "a100": Gpu((8, 0), 108, 64, 1.41, 40 * _MIB, 164 * _KIB, 2.039e12, "NVIDIA A100"),
    "h100": Gpu((9, 0), 132, 128, 1.98, 50 * _MIB, 228 * _KIB, 3.35e12, "NVIDIA H100"),
    "b200": Gpu(
        (10, 0), 148, 128, 1.965, 126 * _MIB, 228 * _KIB, 7.7e12, "NVIDIA B200"
    ),
}
TARGETS = (CPU, *MEMORY)


def parse(text: str, memory: float | None = None) -> Target:
    """The target that a text such as h100:8, h100:4x8, v5e:2x4 or cpu:8 names.

    `memory` replaces the bytes per device that its maker publishes.
    """
    name, _, layout = text.lower().partition(":")
    if name not in TARGETS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", layout or "1"):
        raise ValueError(
            f"--target is {text!r}; use a name and its devices, such as h100:8, "
            f"h100:4x8 (hosts x devices), v5e:2x4 or cpu:8. Known are "
            f"{', '.join(TARGETS)}."
        )
    sizes = [int(n) for n in (layout or "1").split("x")]
    if len(sizes) == 1:
        target = _with_devices(name, sizes[0], text)
    elif name in GPUS and len(sizes) == 2:
        target = Target(name, sizes[0], sizes[1], "", MEMORY[name])
    elif name in MEMORY and name not in GPUS:
        target = Target(name, 1, math.prod(sizes), layout, MEMORY[name])
    else:
        raise ValueError(
            f"--target is {text!r}; {name} takes a number of devices"
            + (" or hosts x devices." if name in GPUS else ".")
        )
    return target if memory is None else target._replace(memory=memory)


def of_size(target: Target, devices: int) -> Target:
    """The same hardware with another number of devices."""
    other = _with_devices(target.name, devices, f"{target.name}:{devices}")
    if target.name == CPU:  # one machine, cut into more parts
        return other._replace(memory=target.memory * target.devices / devices)
    return other._replace(memory=target.memory)


def _with_devices(name: str, devices: int, text: str) -> Target:
    if name == CPU:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Target(name, 1, devices, "", total / devices)
    memory = MEMORY[name]
    if name in GPUS:
        hosts, left = divmod(devices, HOST_SIZE)
        if devices > HOST_SIZE and left:
            raise ValueError(
                f"--target is {text!r}; above {HOST_SIZE} devices their number is a "
                f"multiple of {HOST_SIZE}, or give hosts x devices, such as h100:4x6."
            )
        return Target(name, max(hosts, 1), min(devices, HOST_SIZE), "", memory)
    shapes = _CUBES if name == "v5p" else _FLAT
    if devices < min(shapes):
        return Target(name, 1, devices, "", memory)
    largest = max(shapes)
    slices = 1 if devices in shapes else devices // largest
    if devices not in shapes and devices != slices * largest:
        raise ValueError(
            f"--target is {text!r}; {name} comes in {', '.join(map(str, shapes))} "
            f"chips or several times {largest}, or give a shape, such as {name}:"
            f"{shapes[8]}."
        )
    per_slice = devices // slices
    return Target(name, slices, per_slice, shapes[per_slice], memory)


def set_up(target: Target, most_devices: int = 0) -> None:
    """Gets JAX ready to compile for a target, or ValueError saying what to install.

    JAX itself stays on the CPU: nothing may look for a TPU or a GPU here.
    """
    extra, package = {
        "tpu": ("compile-tpu", "libtpu"),
        "cuda": ("compile-cuda", "jax_cuda12_plugin"),
        CPU: ("", "jax"),
    }[target.platform]
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"compiling for {target.name} needs the package {package}, which is not "
            f"installed; pip install '.[{extra}]' brings it. No device is needed."
        )
    os.environ["JAX_PLATFORMS"] = "cpu"
    if target.platform == "tpu":
        # Else libtpu asks the metadata server of Google's cloud, and waits.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
        # Else it allows one process at a time, as if that had the chips.
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
        os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    if target.platform == "cuda":
        # Else XLA warns of programs that do not fit, which the table says.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax

    jax.config.update("jax_platforms", "cpu")  # where JAX was imported already
    if target.platform == CPU:
        jax.config.update("jax_num_cpu_devices", max(target.devices, most_devices))


def mesh_devices(target: Target) -> list[Any]:
    """The devices; those that are not here can be compiled for and nothing else."""
    import jax
    from jax.experimental import topologies

    if target.platform == CPU:
        return jax.devices("cpu")[: target.devices]
    if target.platform == "tpu":
        shapes = _CUBES if target.name == "v5p" else _FLAT
        shape = target.shape or shapes[min(shapes)]
        several = {"num_slices": target.groups} if target.groups > 1 else {}
        name = f"{target.name}:{shape}"
        try:
            found = topologies.get_topology_desc(name, "tpu", **several)
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"libtpu does not describe the slice {name}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return list(found.devices)[: target.devices]
    layout = f"1x{target.groups}x{target.per_group}"
    found = topologies.get_topology_desc(
        "", "cuda", target_config=describe_gpu(target), topology=layout
    )
    return list(found.devices)


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
device_description_str: "{gpu.name}"
"""
