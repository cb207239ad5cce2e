"""What is installed: the package, with configs/ inside as `cloc_jax.configs`.

A top-level package of the name `configs` could be in the way of others.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["cloc_jax*"]), "cloc_jax.configs"],
    package_dir={"cloc_jax.configs": "configs"},
)
