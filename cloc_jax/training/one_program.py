"""Which runs can be trained as one program; known without loading JAX."""

import copy

from ml_collections import ConfigDict

# Settings in which runs of one program may differ.
FREE = ("seed", "method.cloc.margins", "method.cloc.rho", "data.permute")


def key(config: ConfigDict) -> str:
    """Equal for runs that can be one program; "" for a run that is one by itself."""
    if not config.encoder.frozen:
        return ""
    same = copy.deepcopy(config)
    # One value for all boundaries has another shape.
    shared = "shared" in str(same.method.cloc.margins)
    # A frozen encoder that was drawn at random is another one by seed.
    drawn = same.seed if same.encoder.weights in ("", "random") else -1
    with same.ignore_type():
        same.update_from_flattened_dict(dict.fromkeys(FREE, 0))
    return f"{shared} {drawn} {same.to_json(sort_keys=True)}"
