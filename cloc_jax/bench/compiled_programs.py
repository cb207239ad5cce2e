"""The programs of a run, compiled for any hardware from shapes alone.

No image is read, no weight is loaded and no array is made. Weights may say how a
network was built (`encoder.stride`, …); without them, the encoder's defaults hold.
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from cloc_jax import losses, methods
from cloc_jax.bench import hlo_text
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.training import assembly, encoder, train_step

STEPS_PER_EPOCH = 100  # of schedules, in which it is a constant; changes no cost
ITEMS_OF_TRIPLES = 3


class Program(NamedTuple):
    """A function with the shapes that it is compiled for."""

    name: str  # of which the first word says whether it is a step or a loss
    function: Any  # a jitted function
    arguments: tuple[Any, ...]
    batch: int
    make_carry: Callable[[], Any] | None = None  # the first argument of a step


class TooLarge(MemoryError):
    """The compiler found that a program does not fit into a device."""


def programs(config: ConfigDict, num_ranks: int, mesh: Mesh) -> Iterator[Program]:
    """What training compiles: the step of each stage, and CLOC's loss alone."""
    encoder.check(config)
    sharding.check_batch(config.train.batch_size, mesh)
    method = assembly.build_method(config, num_ranks, mesh)
    create = encoder.Creator(config, method, mesh.size)
    graph, model = checkpoint.split_model(nnx.eval_shape(create.random))
    for index, stage in enumerate(method.stages):
        yield _step(config, stage, index, create, graph, model, mesh)
    if config.method.name == "cloc":
        yield _loss(config, num_ranks, mesh)


def _step(config, stage, index, create, graph, model, mesh) -> Program:
    batch = config.train.batch_size
    given = _batch(config, stage, mesh)
    program = train_step.Program(
        graph,
        stage,
        assembly.fit_settings(config).optimizer,
        mesh,
        steps_per_epoch=STEPS_PER_EPOCH,
        model=model,
        batch=given,
    )

    def make_carry() -> train_step.Carry:
        _, drawn = checkpoint.split_model(encoder.compiled_model(create.random)())
        return program.first_carry(drawn)

    key = jax.eval_shape(lambda: train_step.stage_key(config.seed, index))
    arguments = (program.shapes, given, _placed(key, sharding.copied(mesh)))
    return Program(f"step {stage.name}", program.step, arguments, batch, make_carry)


def _batch(config: ConfigDict, stage: methods.Stage, mesh: Mesh) -> dict[str, Any]:
    """The shapes of a training batch; see data/pipeline.py."""
    rows = config.train.batch_size
    items = ITEMS_OF_TRIPLES if stage.sampler == "triples" else 1
    split = sharding.split_batch(mesh)
    views = [_image(config, rows, view.size) for view in stage.views] * items
    numbers = jax.ShapeDtypeStruct((rows,) if items == 1 else (rows, items), jnp.int32)
    batch = {
        "id": numbers,
        "image": views[0] if len(views) == 1 else tuple(views),
        "label": numbers,
        "mask": jax.ShapeDtypeStruct((rows,), jnp.bool_),
    }
    return jax.tree.map(lambda leaf: _placed(leaf, split), batch)


def _image(config: ConfigDict, rows: int, size: Any) -> jax.ShapeDtypeStruct:
    """Images, or what the frozen parts of the encoder make of them."""
    height, width = size or config.data.size
    shape = (rows, height, width, config.data.channels)
    images = jax.ShapeDtypeStruct(shape, jnp.uint8)
    first = encoder.entrance(config)
    if not first:
        return images
    part = None if first == encoder.FEATURES else first
    return jax.eval_shape(
        lambda images: encoder.build(config, nnx.Rngs(0)).before(images, part), images
    )


def _loss(config: ConfigDict, num_ranks: int, mesh: Mesh) -> Program:
    """CLOC's contrast and its gradients, of embeddings that are there already."""
    rows = config.train.batch_size
    width = {
        "embedding": config.head.projection or encoder.outline(config).features,
        "hidden": config.head.hidden,
        "logits": num_ranks,
    }[config.method.cloc.contrast]
    form = assembly.loss_form(config, mesh)
    options: dict[str, Any] = {
        "algorithm": form,
        "reduction": config.method.cloc.reduction,
    }
    loss = sharding.over_batch(functools.partial(losses.mmnp, **options), mesh)
    split, copied = sharding.split_batch(mesh), sharding.copied(mesh)
    shape = jax.ShapeDtypeStruct
    arguments = (
        shape((rows, width), jnp.float32, sharding=split),
        shape((rows,), jnp.int32, sharding=split),
        shape((num_ranks - 1,), jnp.float32, sharding=copied),
        shape((rows,), jnp.bool_, sharding=split),
    )
    gradient = jax.jit(
        jax.value_and_grad(loss, argnums=(0, 2)),
        out_shardings=(copied, (split, copied)),
    )
    return Program(f"loss {form}", gradient, arguments, rows)


def _placed(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def compile_program(program: Program, platform: str) -> dict[str, Any]:
    """What a compiled program needs on each device, sizes in bytes; or `TooLarge`.

    `platform` is what JAX lowers for: "cpu", "cuda" or "tpu".
    """
    start = time.perf_counter()
    traced = program.function.trace(*program.arguments)
    lowered = traced.lower(lowering_platforms=(platform,))
    middle = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise TooLarge(str(error).splitlines()[0]) from error
    end = time.perf_counter()
    memory, text = compiled.memory_analysis(), compiled.as_text()
    arguments, outputs = memory.argument_size_in_bytes, memory.output_size_in_bytes
    # Compilers disagree on what they count: a CPU's leaves temporaries out of its peak,
    # a TPU's has some of them nowhere else.
    total = arguments + outputs + memory.temp_size_in_bytes
    return {
        "trace_seconds": middle - start,
        "compile_seconds": end - middle,
        "arguments": arguments,
        "outputs": outputs,
        "temporaries": memory.temp_size_in_bytes,
        # At once, with donated arguments counted once.
        "peak": max(total - memory.alias_size_in_bytes, memory.peak_memory_in_bytes),
        "collectives": hlo_text.read_collectives(text),
        "launches": hlo_text.count_launches(text),
    }
