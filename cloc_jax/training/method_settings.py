"""Settings of methods that are not the chosen one: given by mistake, or renamed."""

from collections.abc import Collection

from ml_collections import ConfigDict


def check(config: ConfigDict, schema: ConfigDict, names: Collection[str]) -> None:
    """ValueError where a setting of a method is given that no run uses.

    Args:
      config: as given.
      schema: with every default.
      names: the methods that the runs use.
    """
    for name, defaults in schema.method.items():
        if name in names or not isinstance(defaults, ConfigDict):
            continue
        if config.method[name].to_dict() != defaults.to_dict():
            changed = [
                f"method.{name}.{key}"
                for key, value in config.method[name].to_dict().items()
                if value != defaults.to_dict()[key]
            ]
            raise ValueError(
                f"{', '.join(changed)} is set, but method.name is "
                f"{', '.join(sorted(names))}, which does not use it; leave it out or "
                f"set method.name={name}."
            )
