"""Image files to uint8 arrays, and the fixed preparation that every image gets."""

import io
import os
import threading
import warnings
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageOps

from cloc_jax.runtime import errors, files

# Of damaged files Pillow warns line by line; what matters becomes an ImageError.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")

# No others: Pillow knows some, such as PostScript, that start other programs.
FORMATS = ("BMP", "JPEG", "PNG", "TIFF", "WEBP")
MAX_PIXELS = 89_478_485  # Pillow's own guard against malicious files

_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
_PILLOW_LIMIT = threading.Lock()


class ImageError(ValueError):
    """An image file that cannot be read, or an array that is not an image."""


class NetworkInput(NamedTuple):
    """From an image file or array to what a network sees in evaluation."""

    size: tuple[int, int]  # with the room that a random crop takes away
    channels: int  # 1 (grey) or 3 (red, green, blue)
    crop: tuple[int, int] | None = None  # a window at the centre, cut out first
    equalize: bool = False
    random_crop: float = 0.0  # of training; evaluation sees the centre
    max_pixels: int = MAX_PIXELS  # larger images are refused before decoding

    def of(self, image: str | os.PathLike | np.ndarray) -> np.ndarray:
        """What the network sees of a file, or of an array, which is as its PNG."""
        if isinstance(image, np.ndarray):
            pixels = from_array(image, channels=self.channels)
        else:
            pixels = self.decode(read_bytes(image), os.fspath(image))
        return self.centre(self.prepare(pixels))

    def decode(self, data: bytes, name: str) -> np.ndarray:
        """Pixels of a file, uint8 [height, width, channels], as a viewer shows it.

        EXIF rotation is applied. Transparent pixels are laid on black, the background
        of radiographs and fundus photographs. 16-bit grey is scaled over its whole
        range (65535 becomes 255), so that all files of a dataset keep one scale. Grey
        is repeated to 3 channels; colour becomes 1 channel by luminance (ITU-R 601).
        Of several pages or frames the first is read; colour profiles are ignored.

        ImageError where the data are empty, damaged or none; `name` is for messages.
        """
        try:
            with _open(data) as image:
                pixels = image.width * image.height
                if pixels > self.max_pixels:
                    raise ImageError(
                        f"{name}: it has {pixels:,} pixels, more than the limit of "
                        f"{self.max_pixels:,} that guards memory against malicious "
                        "files; shrink it, or raise data.max_pixels if you trust it."
                    )
                ImageOps.exif_transpose(image, in_place=True)
                return _to_array(image, self.channels, name)
        except (ImageError, MemoryError):
            raise
        # A damaged file can make a decoder raise anything: OSError, SyntaxError,
        # struct.error, zlib.error, IndexError.
        except Exception as error:
            why = f"the image is damaged or cut short ({error}); copy it again"
            if not data:
                why = "the file is empty (0 bytes); copy it again"
            elif isinstance(error, Image.UnidentifiedImageError):
                why = "this is not an image that can be read; convert it to PNG or JPEG"
            raise ImageError(f"{name}: {why}, or remove it.") from error

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """The image cropped, equalised and resized, in this order: uint8 [*size, C].

        It has the room for a random crop. Returns the image itself where there is
        nothing to do, so treat the result as read-only. Equalising spreads the
        histogram of grey levels over 0..255, of a colour image that of its luminance.
        """
        check(image)
        if self.crop is not None:
            image = _centre_crop(image, *self.crop)
        if self.equalize:
            image = _equalize(image)
        return resize(image, self.size)

    def shrink(self, image: np.ndarray) -> np.ndarray:
        """As little of an image as `prepare` needs for the same result.

        The image itself where little is gained, or cropping or equalising comes first.
        """
        height, width = image.shape[:2]
        is_small = height * width <= 4 * self.size[0] * self.size[1]
        if is_small or self.crop is not None or self.equalize:
            return image
        return resize(image, (min(self.size[0], height), min(self.size[1], width)))

    def centre(self, whole: np.ndarray) -> np.ndarray:
        """What evaluation sees of a prepared image: a view of its middle."""
        height, width = whole.shape[:2]
        return _centre_crop(whole, *cropped((height, width), self.random_crop))


def read_bytes(path: str | os.PathLike) -> bytes:
    """Contents of an image file; ImageError where the file itself is at fault."""
    try:
        with errors.naming(path):
            return files.read_regular(path)
    except files.NotRegularError as error:
        raise ImageError(str(error)) from None
    # Other errors of a disk may be gone another time: nothing goes on without it.
    except (FileNotFoundError, PermissionError) as error:
        raise ImageError(
            f"{path}: {error.strerror}; check the path, where it leads if it is a "
            "link, and its access."
        ) from None


def _open(data: bytes) -> Image.Image:
    # Pillow's limit is one for the whole process and only warns up to twice its value.
    # Ours is checked instead, before anything is decoded.
    with _PILLOW_LIMIT:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(io.BytesIO(data), formats=FORMATS)
        finally:
            Image.MAX_IMAGE_PIXELS = kept


def cropped(size: tuple[int, int], fraction: float) -> tuple[int, int]:
    """Height and width that are left when a fraction of each side is cut away."""
    height, width = (max(round(side * (1.0 - fraction)), 1) for side in size)
    return height, width


def uncropped(size: tuple[int, int], fraction: float) -> tuple[int, int]:
    """Height and width of images of which `cropped` leaves `size`, to the pixel."""
    height, width = (round(side / (1.0 - fraction)) for side in size)
    return height, width


def from_array(array: np.ndarray, *, channels: int) -> np.ndarray:
    """An image that is an array already, as a file with these pixels is decoded.

    `array` is uint8 [height, width] or [height, width, 1, 3 or 4].
    """
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if array.dtype != np.uint8 or not is_image or not array.size:
        raise _not_an_image(array)
    return _to_array(Image.fromarray(array), channels, "an array")


def check(image: np.ndarray) -> None:
    """Raises ImageError unless image is uint8 [height, width, 1 or 3]."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise _not_an_image(image)


def _not_an_image(array: np.ndarray) -> ImageError:
    return ImageError(
        f"an array of {array.dtype} {list(array.shape)} came where an image, uint8 "
        "[height, width, 1 or 3], was wanted; scale it to 0 .. 255 and convert it "
        "with .astype(np.uint8)."
    )


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The image with that height and width, itself where it has them.

    A side that shrinks is averaged over areas, one that grows interpolated linearly.
    """
    # First what shrinks, then what grows: INTER_AREA needs both sides to shrink.
    smaller = min(size[0], image.shape[0]), min(size[1], image.shape[1])
    for (rows, columns), interpolation in (
        (smaller, cv2.INTER_AREA),
        (size, cv2.INTER_LINEAR),
    ):
        if image.shape[:2] != (rows, columns):
            resized = cv2.resize(image, (columns, rows), interpolation=interpolation)
            image = resized.reshape(rows, columns, -1)  # OpenCV drops a lone channel
    return image


def _to_array(image: Image.Image, channels: int, name: str) -> np.ndarray:
    if image.mode in _SIXTEEN_BIT or image.mode in ("I", "F"):
        return _deep_grey(image, channels, name)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        image = Image.alpha_composite(black, image)
    if channels == 3:
        # Converting RGB to RGB would copy it, and large images count.
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))
    if image.mode not in ("1", "L"):
        # Not all modes convert to grey directly (CMYK, palettes with transparency).
        image = image.convert("RGB")
    return np.array(image.convert("L"), np.uint8)[:, :, None]


def _deep_grey(image: Image.Image, channels: int, name: str) -> np.ndarray:
    """Grey of more than 8 bits. Pillow's own conversion would clip it at 255."""
    deep = np.asarray(image)
    # Some 16-bit formats arrive as 32-bit integers (mode "I").
    if image.mode == "F" or (deep.size and (deep.min() < 0 or deep.max() > 65535)):
        raise ImageError(
            f"{name}: its pixels ({deep.dtype}, {deep.min():g} to {deep.max():g}) have "
            "no known range of grey levels; save it as 8-bit or 16-bit grey."
        )
    grey = ((deep.astype(np.uint32) + 128) // 257).astype(np.uint8)  # [height, width]
    return np.repeat(grey[:, :, None], channels, axis=2)


def _centre_crop(image: np.ndarray, height: int, width: int) -> np.ndarray:
    have_height, have_width = image.shape[:2]
    if height > have_height or width > have_width:
        raise ImageError(
            f"an image of {have_height}x{have_width} (height x width) is smaller than "
            f"the crop of {height}x{width}; choose a crop that fits the smallest "
            "image, or none."
        )
    top, left = (have_height - height) // 2, (have_width - width) // 2
    return image[top : top + height, left : left + width]


def _equalize(image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return cv2.equalizeHist(image)[:, :, None]
    luminance, red, blue = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb))
    equalized = cv2.merge([cv2.equalizeHist(luminance), red, blue])
    return cv2.cvtColor(equalized, cv2.COLOR_YCrCb2RGB)
