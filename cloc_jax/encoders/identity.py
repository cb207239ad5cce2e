"""The encoder of features that were computed before: it gives back what it gets."""

from flax import nnx
from jaxtyping import Array, Float


class Identity(nnx.Module):
    """What stands where a whole encoder is frozen and its features are kept."""

    def __init__(self, features: int, *, is_signed: bool):
        self.features = features
        self.is_signed = is_signed

    def __call__(
        self, features: Float[Array, "batch features"]
    ) -> Float[Array, "batch features"]:
        return features
