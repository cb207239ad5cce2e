"""Spreading batches and parameters over a mesh of devices.

The mesh has one axis, "data", along which the batch is split; parameters are copied to
every device. Or it has a second one, "shard": the batch is split along both, parameters
along "shard" where one of their axes divides, which saves memory and costs
communication (as in FSDP, or, with several along "data", hybrid sharding). In any case
a step computes what one device would, of the whole batch.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "data"
AXES = (AXIS, "shard")
SMALLEST_SPLIT = 2**12  # elements; smaller arrays are cheaper to copy than to gather


def make_mesh(devices: int = 0, shape: Sequence[int] = ()) -> Mesh:
    """A mesh of the first `devices` devices of all processes; 0 for all of them.

    `shape` is how many there are along AXES; () for one axis.
    """
    available = jax.devices()
    count = devices or len(available)
    is_joint = jax.process_count() > 1  # then all of them work
    if not (len(available) if is_joint else 1) <= count <= len(available):
        raise ValueError(
            f"mesh.devices is {devices}, but there are {len(available)} devices; use "
            f"{'' if is_joint else f'1 to {len(available)}, or '}0 for all."
        )
    return mesh_of(available[:count], shape)


def mesh_of(devices: Sequence[Any], shape: Sequence[int] = ()) -> Mesh:
    """A mesh of these devices, which need not be here."""
    sizes = tuple(shape) or (len(devices),)
    if len(sizes) > len(AXES) or math.prod(sizes) != len(devices) or min(sizes) < 1:
        raise ValueError(
            f"mesh.shape is {tuple(shape)}, but there are {len(devices)} devices; give "
            "two numbers with that product, such as (2, 4) for 8: copies of the "
            "parameters, and parts of each."
        )
    # Explicit axes, the default, would refuse the contrast over a split batch.
    types = (AxisType.Auto,) * len(sizes)
    names = AXES[: len(sizes)]
    slices = {getattr(device, "slice_index", 0) for device in devices}
    if devices[0].platform == "tpu" and len(slices) > 1:
        # `make_mesh` knows one slice. The first axis goes from slice to slice.
        between = (len(slices), *(1 for _ in sizes[1:]))
        if sizes[0] % len(slices):
            raise ValueError(
                f"mesh.shape is {sizes}, but the devices are {len(slices)} slices; its "
                f"first number must be a multiple of {len(slices)}."
            )
        within = (sizes[0] // len(slices), *sizes[1:])
        placed = mesh_utils.create_hybrid_device_mesh(
            within, between, devices, allow_split_physical_axes=True
        )
        return Mesh(placed, names, axis_types=types)
    return jax.make_mesh(sizes, names, axis_types=types, devices=devices)


def own_mesh(mesh: Mesh) -> Mesh:
    """A mesh of this process's devices only; the same one where it has them all."""
    own = [d for d in mesh.devices.flat if d.process_index == jax.process_index()]
    return mesh if len(own) == mesh.size else mesh_of(own)


def processes(mesh: Mesh) -> list[int]:
    """Numbers of the processes whose devices a mesh has."""
    return sorted({device.process_index for device in mesh.devices.flat})


def platform(mesh: Mesh) -> str:
    """What the devices of a mesh are: "cpu", "gpu" or "tpu".

    They need not be those of this machine: programs can be compiled for others.
    """
    name = mesh.devices.flat[0].platform
    return "gpu" if name in ("cuda", "rocm") else name


def check_batch(batch_size: int, mesh: Mesh) -> None:
    """ValueError where a batch does not divide over the devices."""
    devices = mesh.size
    if batch_size % devices:
        step = math.lcm(devices, 2)  # batches are even
        below = batch_size // step * step
        near = " or ".join(str(n) for n in (below, below + step) if n >= 4)
        raise ValueError(
            f"train.batch_size is {batch_size}, which does not divide over {devices} "
            f"devices; try {near}, or use fewer devices (mesh.devices)."
        )


def split_batch(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays whose first axis is the batch."""
    return NamedSharding(mesh, P(_batch_axes(mesh)))


def _batch_axes(mesh: Mesh) -> str | tuple[str, ...]:
    return mesh.axis_names if len(mesh.axis_names) > 1 else AXIS


def copied(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays that every device has whole."""
    return NamedSharding(mesh, P())


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Sharding of every array of a state: its longest axis that divides, or copied."""
    name = mesh.axis_names[-1]
    parts = mesh.shape[name]
    is_split = name != AXIS

    def one(leaf) -> NamedSharding:
        axes = [a for a, n in enumerate(leaf.shape) if n % parts == 0]
        if not is_split or not axes or math.prod(leaf.shape) < SMALLEST_SPLIT:
            return copied(mesh)
        axis = max(axes, key=lambda a: leaf.shape[a])
        return NamedSharding(mesh, P(*(None,) * axis, name))

    return jax.tree.map(one, state)


def over_batch(loss: Callable, mesh: Mesh) -> Callable:
    """A contrastive loss of a batch that lies split over the mesh.

    `loss(embeddings, labels, margins, where=…, axis_name=…)` is called on every device
    with its share of the batch, and the result with (embeddings, labels, margins,
    where). XLA could split the loss by itself, but not along the anchors throughout.
    """
    axis_name = _batch_axes(mesh) if mesh.size > 1 else None

    def of_share(embeddings, labels, margins, where):
        return loss(embeddings, labels, margins, where=where, axis_name=axis_name)

    if axis_name is None:
        return of_share
    split = P(axis_name)
    return jax.shard_map(
        of_share, mesh=mesh, in_specs=(split, split, P(), split), out_specs=P()
    )


def place_state(state: Any, shardings: Any) -> Any:
    """Arrays that every process holds alike, laid out as asked."""

    def one(leaf, sharding):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            # numpy has no random keys; their numbers are copied to every device.
            numbers = one(jax.random.key_data(leaf), sharding)
            return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
        value = np.asarray(leaf)
        return jax.make_array_from_callback(
            value.shape, sharding, lambda index: value[index]
        )

    return jax.tree.map(one, state, shardings)


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """A batch on the devices, from the rows that each process has of it."""
    sharding = split_batch(mesh)
    return jax.tree.map(
        lambda rows: jax.make_array_from_process_local_data(sharding, rows), batch
    )
