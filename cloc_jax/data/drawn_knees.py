"""Embedded data: knee-like joints seen from the front, drawn and never stored.

A latent severity in [0, 1] drives what a radiologist looks at: the joint space
narrows, on the medial side first; spurs (osteophytes) grow at the four bone corners;
the bone beneath the joint surface turns bright (sclerosis). Everything else is
nuisance: pose, side, bone size, the width the space had when healthy, exposure,
blur, tissue and noise. No single pixel and no overall brightness tells the grade.

Grades cut the severity at known, unequal places, so what a method learns about the
distance of grades can be held against the truth:

    grade                0      1      2      3      4
    severity from     0.00   0.16   0.26   0.50   0.84   (to 1.00)
    share              38%    18%    26%    13%     5%
    centre            0.08   0.21   0.38   0.67   0.92
    gap of centres       0.13   0.17   0.29   0.25

Within a grade the severity is uniform, so the centre of its interval is also its mean.
Graders err near a threshold: the observed grade is the cut of severity plus a Gaussian
error, truncated at three standard deviations. At the default `GRADER_NOISE` the largest
error is smaller than the narrowest grade, so observed and true grade differ by one at
most, and the true grade reaches a quadratic weighted kappa (QWK) of 0.965 against the
observed one: no method can be expected to do better.
"""

from collections.abc import Sequence
from typing import SupportsIndex

import cv2
import numpy as np

from cloc_jax.data.source import Source

RANKS = ("0", "1", "2", "3", "4")
THRESHOLDS: tuple[float, ...] = (0.16, 0.26, 0.50, 0.84)
SHARES = (0.38, 0.18, 0.26, 0.13, 0.05)
GRADER_NOISE = 0.03

# Everything that says nothing about the grade, each uniform between two bounds.
# Anatomy is in units of half the plateau's width, x to the medial side, y downwards
# from the middle of the joint; the view in half frames (of the shorter side) and
# radians; densities and the film in shares of the full range.
NUISANCE: dict[str, tuple[float, float]] = {
    "side": (-1.0, 1.0),  # a right knee if > 0: its medial side is right in the image
    "rotation": (-0.26, 0.26),
    "shift_x": (-0.18, 0.18),
    "shift_y": (-0.45, 0.45),
    "zoom": (0.60, 0.77),  # half frames a unit of anatomy
    "femur_width": (0.92, 1.08),
    "tibia_width": (0.92, 1.08),
    "height": (0.88, 1.14),
    "shaft": (0.42, 0.58),
    "notch": (0.20, 0.42),
    "roundness": (0.16, 0.34),
    "eminence": (0.06, 0.17),
    "fibula": (0.0, 1.0),  # how far it stands clear of the tibia
    "space": (0.25, 0.37),  # when healthy; so varied that no width alone decides
    "lag": (0.25, 0.90),  # share of the wear the lateral side is spared
    "spur_femur_medial": (0.7, 1.3),
    "spur_femur_lateral": (0.6, 1.2),
    "spur_tibia_medial": (0.8, 1.3),
    "spur_tibia_lateral": (0.6, 1.2),
    "sclerosis": (0.75, 1.25),
    "femur": (0.24, 0.50),  # density; apart, so neither tells the exposure
    "tibia": (0.24, 0.50),
    "patella": (0.0, 0.12),  # density on top of the femur's
    "patella_x": (-0.2, 0.2),
    "patella_y": (-1.1, -0.72),
    "cortex": (0.10, 0.28),  # density of the rim on top of the bone's
    "tissue": (0.12, 0.30),
    "leg_width": (1.15, 1.75),
    "gradient_x": (-0.12, 0.12),
    "gradient_y": (-0.12, 0.12),
    "texture": (0.08, 0.18),  # slow waves: sums over a region say little
    "blur": (0.004, 0.016),  # standard deviation, in half frames
    "gamma": (0.65, 1.5),
    "gain": (0.55, 0.95),
    "offset": (0.0, 0.15),
    "noise": (0.005, 0.025),
}

_LOW, _HIGH = np.array(list(NUISANCE.values())).T
_GRADING, _DRAWING = 0, 1  # random streams of an item
_SUPERSAMPLING = 2
_SUBPIXEL_BITS = 4

# Shapes over the width of the joint; what does not vary is computed once.
_X = np.linspace(-1.0, 1.0, 33)
_MEDIAL = 1.0 / (1.0 + np.exp(-_X / 0.18))  # 0 lateral .. 1 medial
_CONDYLE = 0.52  # where a condyle is lowest
_ROUNDING = np.clip((np.abs(_X) - _CONDYLE) / (1.0 - _CONDYLE), 0.0, None) ** 2.5
_NOTCH = np.clip((_CONDYLE - np.abs(_X)) / _CONDYLE, 0.0, None) ** 2
_SPINES = np.exp(-(((np.abs(_X) - 0.13) / 0.07) ** 2))

# Sclerosis: along the surface of a condyle, and back beneath it.
_LATERAL_BAND = np.array([*range(1, 14), *range(13, 0, -1)])
_MEDIAL_BAND = np.array([*range(19, 32), *range(31, 18, -1)])
_BAND_DEPTH = np.sin(np.linspace(0.3, np.pi - 0.3, 13)) ** 0.5
_BAND_DROP = np.stack([np.zeros(26), np.append(np.zeros(13), _BAND_DEPTH)], axis=1)

# From a corner of the joint surface to the end of the shaft, far outside the frame:
# outwards and away from the joint, each as factors of (1, spur, shaft).
_FLANK = np.array(
    [
        [(0.00, 0.50, 0.0), (0.00, -0.14, 0.0)],
        [(0.00, 1.00, 0.0), (0.00, -0.25, 0.0)],  # the tip hooks towards the joint
        [(0.00, 0.50, 0.0), (0.05, 0.30, 0.0)],
        [(0.00, 0.00, 0.0), (0.10, 0.60, 0.0)],
        [(-0.02, 0.0, 0.0), (0.32, 0.30, 0.0)],
        [(-0.14, 0.0, 0.0), (0.64, 0.00, 0.0)],
        [(-0.90, 0.0, 1.0), (1.15, 0.00, 0.0)],
        [(-1.00, 0.0, 1.0), (1.70, 0.00, 0.0)],
        [(-1.00, 0.0, 1.0), (12.0, 0.00, 0.0)],
    ]
)
_TURN = np.linspace(0.0, 2.0 * np.pi, 20, endpoint=False)
_PATELLA = np.stack([0.46 * np.cos(_TURN), 0.50 * np.sin(_TURN)], axis=1)
_FIBULA = np.array(
    [
        [-0.83, -0.69, -0.63, -0.69, -0.69, -0.89, -0.89, -0.95],
        [0.50, 0.46, 0.62, 0.95, 12.0, 12.0, 0.95, 0.66],
    ]
).T


def centres() -> np.ndarray:
    """[grade]: the mean severity of each grade."""
    ends = np.array([0.0, *THRESHOLDS, 1.0])
    return (ends[:-1] + ends[1:]) / 2


def grade(severities: np.ndarray) -> np.ndarray:
    """Returns the int32 grade of each severity; a threshold belongs above it."""
    return np.searchsorted(THRESHOLDS, severities, side="right").astype(np.int32)


def draw(
    severity: float, rng: np.random.Generator, size: Sequence[int] = (64, 64)
) -> np.ndarray:
    """Returns a knee of this severity, uint8 [height, width, 1].

    The generator is used in the same way at every severity, so equal generators give
    the same knee, seen in the same way, at another stage of the disease.
    """
    height, width = size
    # All about a knee but its severity and the noise.
    look = dict(zip(NUISANCE, rng.uniform(_LOW, _HIGH).tolist(), strict=True))
    waves = rng.standard_normal((6, 6), np.float32)
    noise = rng.standard_normal((height, width), np.float32)

    to_frame = _to_frame(look, height, width)
    density = _bones(severity, look, to_frame, size)  # 1 is the densest
    texture = cv2.resize(waves, (width, height), interpolation=cv2.INTER_CUBIC)
    density += _tissue(look, to_frame, height, width)
    density *= 1.0 + look["texture"] * texture
    np.clip(density, 0.0, 1.2, out=density)
    film = look["gain"] * cv2.pow(density, look["gamma"]) + look["offset"]
    film += look["noise"] * noise
    return (np.clip(film, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)[..., None]


class Knees(Source):
    """Random-access source of drawn knees: item i depends on (seed, start + i) only.

    Disjoint ranges of `start` and `count` with one seed are disjoint splits of one
    population. Labels, which have the grader's error, and the latent `severities` are
    known without drawing; drawing is thread safe.
    """

    def __init__(
        self,
        count: int,
        *,
        start: int = 0,
        seed: int = 0,
        size: Sequence[int] = (64, 64),
    ):
        self._start, self._seed, self._size = start, seed, tuple(size)
        indices = range(start, start + count)
        self.ids = [f"knee-{seed}-{index:06d}" for index in indices]
        self.stamps = [f"{name} {size[0]}x{size[1]}" for name in self.ids]
        quantiles, errors = np.empty(count), np.empty(count)
        for i, index in enumerate(indices):
            rng = self._rng(_GRADING, index)
            quantiles[i] = rng.random()
            errors[i] = rng.standard_normal()
        # Linear between (cumulative share, threshold): exact, uniform within a grade.
        self.severities = np.interp(
            quantiles, np.cumsum((0.0, *SHARES)), (0.0, *THRESHOLDS, 1.0)
        )
        self.labels = grade(self.severities + GRADER_NOISE * np.clip(errors, -3.0, 3.0))

    def __getitem__(self, index: SupportsIndex) -> np.ndarray:
        """Draws item `index`: uint8 [height, width, 1]. Does not count from the end."""
        i = int(index)
        if not 0 <= i < len(self.ids):
            raise IndexError(f"item {i} is not among 0 .. {len(self.ids) - 1}.")
        rng = self._rng(_DRAWING, self._start + i)
        return draw(float(self.severities[i]), rng, self._size)

    def _rng(self, stream: int, index: int) -> np.random.Generator:
        # A spawn key, as (seed, index, 0) and (seed, index) are one seed to numpy.
        entropy = np.random.SeedSequence(self._seed, spawn_key=(stream, index))
        return np.random.default_rng(entropy)


def _to_frame(look: dict[str, float], height: int, width: int) -> np.ndarray:
    """Affine map [2, 3] from anatomy to pixels, whose corners are whole numbers."""
    half = min(height, width) / 2.0
    unit = look["zoom"] * half
    cos, sin = np.cos(look["rotation"]) * unit, np.sin(look["rotation"]) * unit
    mirror = 1.0 if look["side"] > 0 else -1.0
    centre_x = width / 2.0 + look["shift_x"] * half
    centre_y = height / 2.0 + look["shift_y"] * half
    return np.array([[mirror * cos, -sin, centre_x], [mirror * sin, cos, centre_y]])


def _surfaces(
    severity: float, look: dict[str, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heights over `_X` of the femur's and the tibia's joint surface, and the wear."""
    lag = look["lag"] * (1.0 - 0.5 * severity)  # the lateral side catches up
    wear = severity * (1.0 - lag * (1.0 - _MEDIAL))
    space = look["space"] * (1.0 - 0.95 * wear)
    femur = -0.5 * space - look["roundness"] * _ROUNDING - look["notch"] * _NOTCH
    tibia = 0.5 * space + 0.07 * _ROUNDING - look["eminence"] * _SPINES
    return femur, tibia, wear


def _bones(
    severity: float, look: dict[str, float], to_frame: np.ndarray, size: Sequence[int]
) -> np.ndarray:
    """Density of the bones alone, float32 [height, width]."""
    shapes, values = _shapes(severity, look)
    points = np.concatenate(shapes) * (1.0, look["height"])
    points = points @ to_frame[:, :2].T + to_frame[:, 2]
    # In fixed point; a canvas pixel's centre, not its corner, is a whole number.
    points = (points * _SUPERSAMPLING - 0.5) * (1 << _SUBPIXEL_BITS)
    points = np.rint(points).astype(np.int32)

    height, width = size
    half = min(size) / 2.0 * _SUPERSAMPLING
    rim = max(1, round(0.035 * look["zoom"] * half))
    canvas = np.zeros((height * _SUPERSAMPLING, width * _SUPERSAMPLING), np.uint8)
    end = 0
    for shape, (inside, edge) in zip(shapes, values, strict=True):
        begin, end = end, end + len(shape)
        polygon = points[begin:end]
        how = cv2.LINE_AA, _SUBPIXEL_BITS
        cv2.fillPoly(canvas, [polygon], 255.0 * inside, *how)
        if edge is not None:
            cv2.polylines(canvas, [polygon], True, 255.0 * edge, rim, *how)
    blurred = cv2.GaussianBlur(canvas, (0, 0), max(look["blur"] * half, 0.3))
    reduced = cv2.resize(blurred, (width, height), interpolation=cv2.INTER_AREA)
    return reduced.astype(np.float32) / 255.0


def _shapes(
    severity: float, look: dict[str, float]
) -> tuple[list[np.ndarray], list[tuple[float, float | None]]]:
    """Polygons [points, 2], back to front, with the density inside and of the rim."""
    femur, tibia, wear = _surfaces(severity, look)
    shapes = [_FIBULA - (0.22 * look["fibula"], 0.0)]
    values: list[tuple[float, float | None]] = [(0.75 * look["tibia"], None)]
    # Below one, so that spurs show early in the disease.
    lateral, medial = 0.46 * wear[0] ** 0.7, 0.46 * wear[-1] ** 0.7
    for name, surface, away in (("femur", femur, -1.0), ("tibia", tibia, 1.0)):
        bone, cortex = look[name], look[name] + look["cortex"]
        joint = np.stack([look[f"{name}_width"] * _X, surface], axis=1)
        # From the corners of the joint: spur, flare and shaft.
        lateral_spur = lateral * look[f"spur_{name}_lateral"]
        medial_spur = medial * look[f"spur_{name}_medial"]
        lateral_side = _FLANK @ (1.0, lateral_spur, look["shaft"]) * (-1.0, away)
        medial_side = _FLANK @ (1.0, medial_spur, look["shaft"]) * (1.0, away)
        sides = joint[-1] + medial_side, joint[0] + lateral_side[::-1]
        shapes.append(np.concatenate([joint, *sides]))
        values.append((bone, cortex))
        if name == "femur":
            shapes.append(_PATELLA + (look["patella_x"], look["patella_y"]))
            values.append((bone + look["patella"], None))
        for band in (_LATERAL_BAND, _MEDIAL_BAND):
            worn = look["sclerosis"] * wear[band[6]]  # in its middle
            along = joint[band]
            for depth, glow in ((0.20, 0.07), (0.11, 0.15)):  # fades into the bone
                drop = away * (0.02 + depth * worn) * _BAND_DROP
                shapes.append(along + drop)
                values.append((min(cortex + glow * worn, 1.0), None))
    return shapes, values


def _tissue(
    look: dict[str, float], to_frame: np.ndarray, height: int, width: int
) -> np.ndarray:
    """Density of the soft tissue: a leg with soft edges, uneven across the frame."""
    # A similarity's inverse is its transpose over the square of its scale.
    along_x = to_frame[:, 0] / (to_frame[:, 0] @ to_frame[:, 0])
    columns = np.arange(0.5, width) - to_frame[0, 2]
    rows = np.arange(0.5, height)[:, None] - to_frame[1, 2]
    x = (along_x[0] * columns + along_x[1] * rows).astype(np.float32)  # [height, width]
    inside = np.clip((look["leg_width"] - np.abs(x)) / 0.35, 0.0, 1.0)
    slope_x = (2.0 * look["gradient_x"] / width) * (columns + to_frame[0, 2])
    slope_y = (2.0 * look["gradient_y"] / height) * (rows + to_frame[1, 2])
    level = look["tissue"] - look["gradient_x"] - look["gradient_y"]
    return inside * (level + slope_x + slope_y).astype(np.float32)
