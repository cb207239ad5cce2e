"""Hardware to compile for, which need not be here: what it is and what it can do.

XLA's compilers need no device: libtpu compiles for any TPU slice, and the CUDA plugin
for any GPU that is described to it. Figures are those that the makers publish, per
device; every one can be overridden on the command line. Nothing of JAX is imported
before `set_up`, which has to come first.
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
_FLAT = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {
    4: "2x2x1",
    8: "2x2x2",
    16: "2x2x4",
    32: "2x4x4",
    64: "4x4x4",
    128: "4x4x8",
    256: "4x8x8",
    512: "8x8x8",
}


class Figures(NamedTuple):
    """What a device can do; bytes and operations per second."""

    memory: float  # bytes
    float32: float  # operations, as XLA multiplies float32 there by default
    bfloat16: float
    bandwidth: float  # of its memory
    link: float  # that it sends to the others of its host or slice
    network: float  # that it sends to other hosts or slices
    latency: float  # seconds that each communication takes at least; assumed
    source: str = ""


class Gpu(NamedTuple):
    """What XLA asks of a GPU before it compiles for it."""

    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    units: int  # float32 units in each of them
    clock: float  # GHz
    cache: int  # bytes of L2
    shared: int  # bytes of shared memory per core
    name: str


class Target(NamedTuple):
    """Devices to compile for."""

    name: str  # as the table has it
    groups: int  # hosts of GPUs, slices of TPUs
    per_group: int  # devices in each
    shape: str  # of a slice of TPUs
    figures: Figures

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


_NVIDIA = "NVIDIA's data sheet of the {} (dense; float32 as TF32)"
_GOOGLE = "https://docs.cloud.google.com/tpu/docs/{} (float32 as bfloat16)"
_MICROSECONDS_10 = 1e-5

FIGURES = {
    "a100": Figures(
        *(80e9, 156e12, 312e12, 2.039e12, 300e9, 25e9, _MICROSECONDS_10),
        source=_NVIDIA.format("A100 80GB SXM; 200 Gb/s of network each"),
    ),
    "h100": Figures(
        *(80e9, 494.7e12, 989.4e12, 3.35e12, 450e9, 50e9, _MICROSECONDS_10),
        source=_NVIDIA.format("H100 SXM; 400 Gb/s of network each"),
    ),
    "b200": Figures(
        *(180e9, 1125e12, 2250e12, 7.7e12, 900e9, 50e9, _MICROSECONDS_10),
        source=_NVIDIA.format("HGX B200; 400 Gb/s of network each"),
    ),
    "v5e": Figures(
        *(16 * GIB, 197e12, 197e12, 819e9, 200e9, 3.1e9, _MICROSECONDS_10),
        source=_GOOGLE.format("v5e"),
    ),
    "v5p": Figures(
        *(95 * GIB, 459e12, 459e12, 2.765e12, 600e9, 6.25e9, _MICROSECONDS_10),
        source=_GOOGLE.format("v5p"),
    ),
    "v6e": Figures(
        *(32 * GIB, 918e12, 918e12, 1.64e12, 400e9, 12.5e9, _MICROSECONDS_10),
        source=_GOOGLE.format("v6e"),
    ),
}
OVERRIDES = tuple(f for f in Figures._fields if f != "source")

GPUS = {
    "a100": Gpu((8, 0), 108, 64, 1.41, 40 * 2**20, 164 * 2**10, "NVIDIA A100"),
    "h100": Gpu((9, 0), 132, 128, 1.98, 50 * 2**20, 228 * 2**10, "NVIDIA H100"),
    "b200": Gpu((10, 0), 148, 128, 1.965, 126 * 2**20, 228 * 2**10, "NVIDIA B200"),
}
TARGETS = (CPU, *FIGURES)


def parse(text: str, overrides: dict[str, float] | None = None) -> Target:
    """The target that a text such as h100:8, h100:4x8, v5e:2x4 or cpu:8 names."""
    name, _, layout = text.lower().partition(":")
    if name not in TARGETS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", layout or "1"):
        raise ValueError(
            f"--target is {text!r}; use a name and its devices, such as h100:8, "
            f"h100:4x8 (hosts x devices), v5e:2x4 or cpu:8. Known are "
            f"{', '.join(TARGETS)}."
        )
    sizes = [int(n) for n in (layout or "1").split("x")]
    if len(sizes) == 1:
        target = _of_size(name, sizes[0], text)
    elif name in GPUS and len(sizes) == 2:
        target = Target(name, sizes[0], sizes[1], "", FIGURES[name])
    elif name in FIGURES and name not in GPUS:
        target = Target(name, 1, math.prod(sizes), layout, FIGURES[name])
    else:
        raise ValueError(
            f"--target is {text!r}; {name} takes a number of devices"
            + (" or hosts x devices." if name in GPUS else ".")
        )
    given: dict[str, Any] = {
        name: value for name, value in (overrides or {}).items() if value is not None
    }
    return target._replace(figures=target.figures._replace(**given))


def of_size(target: Target, devices: int) -> Target:
    """The same hardware with another number of devices."""
    found = _of_size(target.name, devices, f"{target.name}:{devices}")
    if target.name == CPU:
        shared = target.devices / devices  # it is one machine, cut into more parts
        figures = target.figures
        return found._replace(
            figures=figures._replace(
                **{
                    key: getattr(figures, key) * shared
                    for key in ("memory", "float32", "bfloat16", "bandwidth")
                }
            )
        )
    return found._replace(figures=target.figures)


def _of_size(name: str, devices: int, text: str) -> Target:
    if name == CPU:
        return Target(name, 1, devices, "", _figures_of_this_machine(devices))
    figures = FIGURES[name]
    if name in GPUS:
        hosts, left = divmod(devices, HOST_SIZE)
        if devices > HOST_SIZE and left:
            raise ValueError(
                f"--target is {text!r}; above {HOST_SIZE} devices their number is a "
                f"multiple of {HOST_SIZE}, or give hosts x devices, such as h100:4x6."
            )
        return Target(name, max(hosts, 1), min(devices, HOST_SIZE), "", figures)
    shapes = _CUBES if name == "v5p" else _FLAT
    if devices < min(shapes):
        return Target(name, 1, devices, "", figures)
    largest = max(shapes)
    slices = 1 if devices in shapes else devices // largest
    if devices not in shapes and devices != slices * largest:
        raise ValueError(
            f"--target is {text!r}; {name} comes in {', '.join(map(str, shapes))} "
            f"chips or several times {largest}, or give a shape, such as {name}:"
            f"{shapes[8]}."
        )
    per_slice = devices // slices
    return Target(name, slices, per_slice, shapes[per_slice], figures)


def _figures_of_this_machine(devices: int) -> Figures:
    """Memory of this machine; speeds are 0 until `roofline.measure_machine`."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Figures(total / devices, 0, 0, 0, 0, 0, 0, "measured on this machine")


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
    gpu, figures = GPUS[target.name], target.figures
    kib = 2**10
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 * kib,
        "shared_memory_per_core": gpu.shared,
        "shared_memory_per_block_optin": gpu.shared - kib,
        "threads_per_core_limit": 2048,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.units,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "registers_per_core_limit": 2**16,
        "registers_per_block_limit": 2**16,
        "memory_bandwidth": int(figures.bandwidth),
        "l2_cache_size": gpu.cache,
        "clock_rate_ghz": gpu.clock,
        "device_memory_size": int(figures.memory),
    }
    lines = [f"  {key}: {value}" for key, value in fields.items()]
    major, minor = gpu.capability
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            f"  cuda_compute_capability {{ major: {major} minor: {minor} }}",
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 10 patch: 0 }",
            f'device_description_str: "{gpu.name}"',
            "",
        ]
    )
