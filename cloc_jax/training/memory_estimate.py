"""How much memory batches of images take at least, known before any is read."""

import contextlib
import os
import pathlib
import resource

from ml_collections import ConfigDict

from cloc_jax.data import augment

GIB = 2**30
CGROUP = pathlib.Path("/sys/fs/cgroup/memory.max")  # the limit of a container
# Of each value: one byte as it is read, one in the next batch, four while computing.
BYTES = 6


def check(config: ConfigDict) -> None:
    """ValueError where not even a batch of images fits into this machine's memory."""
    height, width = augment.uncropped(config.data.size, config.augment.random_crop)
    train = config.train
    batch = max(train.batch_size, train.eval_batch_size)
    if config.encoder.frozen:  # images are read in small batches, and once
        batch = min(batch, 32)
    needed = batch * height * width * config.data.channels * BYTES
    have = memory_bytes()
    if needed > have:
        one = height * width * config.data.channels
        raise ValueError(
            f"data.size={tuple(config.data.size)} needs at least {needed / GIB:,.1f} "
            f"GiB of memory for {batch} images at a time, {one / 2**20:,.1f} MiB each "
            f"as pixels and {BYTES} times that in use, without the network's own; this "
            f"machine has {have / GIB:,.1f} GiB. Use smaller images (data.size), or a "
            f"smaller train.batch_size ({train.batch_size}) and train.eval_batch_size "
            f"({train.eval_batch_size})."
        )


def memory_bytes() -> int:
    """What this process can have at most: the machine's, a container's, a limit's."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # "max" where there is none
        found.append(int(CGROUP.read_text()))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    return min(found)
