"""Margins that no triplet keeps, so that their values have no influence.

The hinge max(0, s_ik + margin - s_ij) has a gradient of 1 wherever it is above 0. Where
all of them are, the gradient of the loss by the embeddings is the same for any margins.
"""

from collections.abc import Mapping

ALL = 0.999  # a share of the triplets that counts as all of them


def are_unmet(violated: Mapping[str, float | None]) -> bool:
    """Whether next to every triplet violates its margin, at all boundaries."""
    shares = [share for share in violated.values() if share is not None]
    return bool(shares) and min(shares) >= ALL


def sentence(violated: Mapping[str, float | None]) -> str:
    """What that means, or "" where some triplets keep their margin."""
    if not are_unmet(violated):
        return ""
    return (
        "Next to no triplet of test images keeps its margin. While that is so in "
        "training, the contrast between images treats all other ranks alike and does "
        "not depend on the margins: learned, fixed and raised ones train the same "
        "network. Smaller margins, a projection (head.projection) or longer training "
        "may change that."
    )
