"""Where runs are trained: in this process, by SLURM, or on a Ray cluster."""

from cloc_jax.sweeps.engines.driver import ENGINES, LOCAL, Options, carry_out

__all__ = ["ENGINES", "LOCAL", "Options", "carry_out"]
