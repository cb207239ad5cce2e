"""The Ray executor: commands as remote tasks, which Ray places and retries itself."""

import logging
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from cloc_jax.runtime.console import console
from cloc_jax.sweeps import executors
from cloc_jax.sweeps.executors import Work
from cloc_jax.sweeps.plan import Options

# Of the driver's environment; other variables may be secrets.
CARRIED = re.compile(r"JAX_|XLA_|TF_CPP|XDG_CACHE_HOME$|HF_HOME$|HF_ENDPOINT$")


def train_one(work: Work) -> None:
    """What Ray runs on one of its machines; saves the run when it is cancelled."""
    try:
        work()
    except KeyboardInterrupt:
        work.stop()
        raise


def train_on_ray(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands on a Ray cluster; why runs were lost, by name."""
    import ray  # late: it is optional, and takes seconds

    settings = dict(options.settings)
    address = settings.pop("address", None)
    carried = {k: v for k, v in os.environ.items() if CARRIED.match(k)}
    given: dict[str, Any] = {
        "num_cpus": 1,
        "max_retries": options.retries,
        "retry_exceptions": [executors.Died],
        "runtime_env": {"env_vars": carried | {"PYTHONPATH": executors.PACKAGE}},
    }
    try:
        remote = ray.remote(train_one).options(**(given | settings))
        # With None it joins the cluster that RAY_ADDRESS names, or starts one.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"--option is {settings}, which Ray does not take: {error}"
        ) from None
    waiting, busy = list(works), dict[Any, str]()
    lost: dict[str, str] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < (options.workers or math.inf):
                work = waiting.pop(0)
                busy[remote.remote(work)] = work.run.name
            for task in ray.wait(list(busy))[0]:
                name = busy.pop(task)
                try:
                    ray.get(task)
                except ray.exceptions.RayTaskError as error:
                    lost[name] = f"{error.cause} in {options.retries + 1} attempts"
                except ray.exceptions.RayError as error:
                    lost[name] = f"Ray lost its worker ({type(error).__name__})"
                left = len(waiting) + len(busy)
                console.print(f"{len(works) - left} of {len(works)} runs have ended")
    finally:
        for task in busy:
            ray.cancel(task)
        ray.wait(list(busy), num_returns=len(busy), timeout=executors.GRACE_SECONDS)
        ray.shutdown()
    return lost
