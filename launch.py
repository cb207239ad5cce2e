"""cloc_jax from its repository: `python launch.py JOB …`; --help shows the jobs."""

from cloc_jax.__main__ import start

if __name__ == "__main__":
    start()
