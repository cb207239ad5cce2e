"""Faces turned and scaled so that their eyes lie where they always lie."""

import cv2
import numpy as np

SIDE = 256  # pixels of an aligned face
EYE = (0.35, 0.35)  # where the left one lies, as shares of width and height


def align(image: np.ndarray, eyes: tuple[float, float, float, float]) -> np.ndarray:
    """The face as uint8 [256, 256, channels], its eyes level and at a fixed distance.

    A similarity transform: turned, scaled and moved, nothing else. What lies outside
    the image is black. Of the two eyes the one further left in the picture comes left,
    whichever is given first.

    Args:
        image: uint8 [height, width, 1 or 3].
        eyes: x and y of one eye, then of the other, in pixels.
    """
    left, right = sorted([eyes[:2], eyes[2:]])
    across = np.subtract(right, left)  # [x, y]
    distance = float(np.hypot(*across))
    if not distance:
        raise ValueError(f"both eyes are at {left}; they must be two points.")
    scale = (1 - 2 * EYE[0]) * SIDE / distance
    # Warping alone would skip pixels of a much larger image.
    shrink = max(int(1 / scale), 1)
    if shrink > 1:
        height, width = (max(side // shrink, 1) for side in image.shape[:2])
        factor = np.array([width / image.shape[1], height / image.shape[0]])
        small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        image = small.reshape(height, width, -1)
        # Pixel centres are at whole numbers, corners half a pixel off.
        left, right = ((np.add(eye, 0.5) * factor - 0.5) for eye in (left, right))
        across = np.subtract(right, left)
        scale = (1 - 2 * EYE[0]) * SIDE / float(np.hypot(*across))
    cos, sin = scale * across / np.hypot(*across)
    turn = np.array([[cos, sin], [-sin, cos]])
    target = np.array([EYE[0] * SIDE, EYE[1] * SIDE])
    matrix = np.column_stack([turn, target - turn @ np.asarray(left)])
    face = cv2.warpAffine(image, matrix, (SIDE, SIDE), flags=cv2.INTER_LINEAR)
    return face.reshape(SIDE, SIDE, -1)
