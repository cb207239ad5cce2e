"""Runs so small that they take seconds, and a look into what they leave."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx

from cloc_jax.methods import HeadOptions, Limits, Task
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly, train_step
from configs import folder, quickstart

# Sizes of methods with which a step compiles quickly.
SMALL_METHODS = {
    "method__dino__output": 16,
    "method__dino__hidden": 8,
    "method__dino__bottleneck": 4,
    "method__dino__local_crops": 2,
    "method__dino__local_size": (16, 16),
    "method__mwr__hidden": 8,
    "method__gol__width": 4,
    "method__poe__samples": 3,
}


def task(num_ranks):
    """What a method is made for that needs neither a head nor a mesh."""
    head = HeadOptions(0, False, "layers", 8, "free")
    limits = Limits(2, 2, "mae")
    return Task(num_ranks, limits, head, sharding.make_mesh(1), batch_size=8)


KEY = jax.random.key(0)  # of steps


def changed(config, changes):
    """The configuration for a network that trains in no time, and with changes."""
    settings = {
        "encoder.widths": (2, 4, 4, 4),
        "head.hidden": 8,
        "train.batch_size": 8,
        "train.max_epochs": 1,
        "mesh.devices": 1,
    } | {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(settings)
    return config


def tiny(**changes):
    config = quickstart.get_config()
    changes = {
        "data.num_train": 48,
        "data.num_val": 20,
        "data.num_test": 14,
        "data.size": (24, 24),
    } | changes
    return changed(config, changes)


def clean(**changes):
    config = tiny(**changes)
    for name in config.augment:
        config.augment[name] = 0.0
    return config


def of_folder(root, **changes):
    """The configuration of a run on image files that takes seconds."""
    config = folder.get_config()
    changes = {
        "data.root": str(root),
        "data.size": (16, 16),
        "encoder.name": "small",
        "encoder.weights": "",
        "method.name": "ce",
    } | changes
    return changed(config, changes)


def stage_parts(config, index=0):
    parts = assembly.build(config)
    stage = parts.method.stages[index]
    graph, state = checkpoint.split_model(parts.create())
    images = np.stack([parts.dataset.splits["train"][i] for i in range(8)])
    batch = {
        "id": jnp.arange(8, dtype=jnp.int32),
        "image": jnp.asarray(images),
        "label": jnp.asarray([0, 0, 1, 1, 2, 2, 4, 4], jnp.int32),
        "mask": jnp.ones(8, bool),
    }
    program = program_of(config, parts, stage, index, graph, state, batch)
    batch = sharding.place_batch(batch, parts.mesh)
    return program.step, program.first_carry(state), batch, parts, graph


def program_of(config, parts, stage, index, graph, state, batch):
    return train_step.program(
        graph,
        stage,
        assembly.fit_settings(config).optimizer,
        parts.mesh,
        steps_per_epoch=parts.samplers[index].steps_per_epoch,
        model=state,
        batch=batch,
    )


def final_state(config, folder, stage):
    parts = assembly.build(config, folder)
    graph, like = checkpoint.split_model(nnx.eval_shape(parts.create.random))
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return checkpoint.load_model(folder.stage(stage), like, here), parts


def by_name(state, group):
    """The arrays below one group of the encoder or the model."""
    flat = jax.tree_util.tree_leaves_with_path(state)
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in flat}
    return {name: leaf for name, leaf in named.items() if f"'{group}'" in name}


def history(run):
    """The rows of a run's history apart from times."""
    changes = ("seconds", "integrity")
    rows = RunFolder(run).read_history()
    return [{k: v for k, v in row.items() if k not in changes} for row in rows]


def arrays(run, stage):
    """The arrays of a stage's model by name, whatever devices wrote them."""
    path = (run / "stages" / stage).absolute()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        found = checkpointer.metadata(path).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(np.ndarray), found)
        tree = checkpointer.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
