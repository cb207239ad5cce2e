"""Reading and preparing images, on files written here."""

import cv2
import numpy as np
import pytest
from miniatures import bomb, read
from PIL import EpsImagePlugin, Image

from cloc_jax.data import images
from cloc_jax.data.images import NetworkInput

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"


@pytest.fixture
def ramp() -> np.ndarray:
    """Every grey level once, uint8 [8, 32]."""
    return np.arange(256, dtype=np.uint8).reshape(8, 32)


@pytest.fixture
def colours() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (6, 9, 3), dtype=np.uint8)


def luminance(colours: np.ndarray) -> np.ndarray:
    return colours.astype(np.float64) @ (0.299, 0.587, 0.114)


def save(path, array_or_image, **options):
    image = array_or_image
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    image.save(path, **options)
    return path


def test_colour_is_exact_and_grey_by_luminance(tmp_path, colours):
    path = save(tmp_path / "colour.png", colours)
    np.testing.assert_array_equal(read(path, channels=3), colours)
    grey = read(path, channels=1)
    assert grey.shape == (6, 9, 1)
    np.testing.assert_allclose(grey[:, :, 0], luminance(colours), atol=0.51)


def every_mode():
    """Images of each mode that Pillow reads, and the pixels they stand for."""
    ramp = np.arange(256, dtype=np.uint8).reshape(8, 32)
    yield "grey.png", Image.fromarray(ramp), {}, ramp
    deep = ramp.astype(np.uint16) * 257
    swapped = Image.frombytes("I;16B", (32, 8), deep.astype(">u2").tobytes())
    yield "swapped.tif", swapped, {}, ramp
    deep[0, :2] = 100, 200  # below and above the middle of 0 and 257
    levels = ramp.copy()
    levels[0, :2] = 0, 1
    for extension in ("png", "tif"):
        yield f"deep.{extension}", Image.fromarray(deep), {}, levels
    alpha = np.where(ramp < 128, 0, 255).astype(np.uint8)
    both = Image.merge("LA", [Image.fromarray(ramp), Image.fromarray(alpha)])
    yield "la.png", both, {}, np.where(ramp < 128, 0, ramp)
    bits = np.arange(16).reshape(2, 8) == 11
    yield "bits.png", Image.fromarray(bits), {}, 255 * bits
    palette = Image.new("P", (4, 2))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((3, 1), 1)
    colours = np.full((2, 4, 3), (10, 20, 30))
    colours[1, 3] = 200, 100, 50
    yield "palette.png", palette, {}, colours
    clear = colours.copy()
    clear[1, 3] = 0
    yield "clear.png", palette, {"transparency": 1}, clear
    key = Image.fromarray(colours.astype(np.uint8))
    yield "key.png", key, {"transparency": (200, 100, 50)}, clear


@pytest.mark.parametrize(("name", "image", "options", "expected"), [*every_mode()])
def test_every_mode_is_exact(tmp_path, name, image, options, expected):
    path = save(tmp_path / name, image, **options)
    one, three = (read(path, channels=channels) for channels in (1, 3))
    if expected.ndim == 3:  # grey is the luminance, not the index in a palette
        np.testing.assert_allclose(one[:, :, 0], luminance(expected), atol=0.51)
    else:
        np.testing.assert_array_equal(one[:, :, 0], expected)
        expected = np.stack([expected] * 3, axis=-1)
    np.testing.assert_array_equal(three, expected)


@pytest.mark.parametrize("value", [np.int32(-1), np.int32(65536), np.float32(0.5)])
def test_unknown_range_is_refused(tmp_path, value):
    path = save(tmp_path / "wide.tif", np.full((4, 4), value))
    with pytest.raises(images.ImageError, match="wide.tif.*8-bit or 16-bit"):
        read(path, channels=1)


@pytest.mark.parametrize("extension", ["jpg", "tif"])
def test_cmyk(tmp_path, extension):
    path = tmp_path / f"print.{extension}"
    save(path, Image.new("CMYK", (16, 16), (0, 255, 255, 0)))  # magenta + yellow: red
    pixels = read(path, channels=3)
    np.testing.assert_allclose(pixels, np.full((16, 16, 3), (255, 0, 0)), atol=3)
    assert abs(int(read(path, channels=1)[8, 8, 0]) - 76) <= 2


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [(3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, -1))],
)
def test_exif_rotation(tmp_path, orientation, turn):
    stored = np.zeros((16, 32), np.uint8)
    stored[:8, :8] = 255  # a bright corner, aligned with the JPEG blocks
    stored[:8, 8:16] = 128
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "photo.jpg", stored, exif=exif, quality=100)
    pixels = read(path, channels=1)[:, :, 0]
    np.testing.assert_allclose(pixels.astype(int), turn(stored).astype(int), atol=2)


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "tif", "bmp"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_cut_short(tmp_path, colours, extension):
    path = tmp_path / f"short.{extension}"
    save(path, Image.fromarray(np.kron(colours, np.ones((20, 20, 1), np.uint8))))
    data = path.read_bytes()
    for keep in (len(data) // 2, 30):
        path.write_bytes(data[:keep])
        with pytest.raises(images.ImageError, match=f"short.{extension}.* (copy|conv)"):
            read(path, channels=3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jpg", b"", r"empty\.jpg.*0 bytes.*remove"),
        ("text.png", b"grade,file\n0,a.png\n", r"text\.png.*not an image.*convert"),
        ("script.png", POSTSCRIPT, r"script\.png.*not an image that can be read"),
        ("bomb.png", bomb(), r"bomb\.png.*400,000,000 pixels"),
        (".", None, "is a folder"),
        ("gone.png", None, r"gone\.png.*check the path"),
    ],
)
def test_what_is_no_image(tmp_path, monkeypatch, name, content, message):
    def run(*arguments, **options):
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(images.ImageError, match=message):
        read(tmp_path / name, channels=3)


def test_the_limit_of_pixels_is_ours_and_pillows_stays(tmp_path, ramp, monkeypatch):
    path = save(tmp_path / "large.png", ramp)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)  # Pillow would refuse 256
    message = r"large\.png.*256 pixels.*limit of 255.*max_pixels"
    with pytest.raises(images.ImageError, match=message):
        read(path, channels=1, max_pixels=255)
    assert read(path, channels=1, max_pixels=256).shape == (8, 32, 1)
    assert Image.MAX_IMAGE_PIXELS == 30


# --- prepare ---


def prepare(image: np.ndarray, **how) -> np.ndarray:
    return NetworkInput(channels=image.shape[-1], **how).prepare(image)


def test_nothing_to_do_returns_the_image(ramp):
    image = ramp[:, :, None]
    assert prepare(image, size=(8, 32)) is image
    same = prepare(image, size=(8, 32), crop=(8, 32))
    np.testing.assert_array_equal(same, image)


def test_crop_cuts_the_centre():
    rows, columns = np.mgrid[:10, :20]
    image = np.stack([rows, columns, rows + columns], axis=-1).astype(np.uint8)
    cut = prepare(image, size=(4, 6), crop=(4, 6))
    np.testing.assert_array_equal(cut, image[3:7, 7:13])
    odd = prepare(image, size=(3, 5), crop=(3, 5))  # one more at the far side
    np.testing.assert_array_equal(odd, image[3:6, 7:12])


def test_crop_comes_before_equalize_and_resize():
    image = np.zeros((8, 8, 1), np.uint8)
    image[2:6, 2:4], image[2:6, 4:6] = 100, 101
    out = prepare(image, size=(2, 2), crop=(4, 4), equalize=True)
    # Two levels in the window are spread to the ends of the scale; the black frame,
    # were it counted, would keep 100 from 0.
    assert out[:, :, 0].tolist() == [[0, 255], [0, 255]]


def test_equalize_flattens():
    rng = np.random.default_rng(0)
    image = rng.normal(90, 8, (100, 100, 1)).clip(0, 255).astype(np.uint8)
    out = prepare(image, size=(100, 100), equalize=True)
    assert out.min() == 0 and out.max() == 255
    # Equalising is monotone: the order of levels stays.
    order = np.argsort(image.ravel(), kind="stable")
    assert (np.diff(out.ravel()[order].astype(int)) >= 0).all()
    flat = np.full((5, 5, 1), 77, np.uint8)
    np.testing.assert_array_equal(prepare(flat, size=(5, 5), equalize=True), flat)
    colour = np.random.default_rng(0).integers(100, 130, (64, 64, 3), dtype=np.uint8)
    out = prepare(colour, size=(64, 64), equalize=True)
    assert np.ptp(luminance(out)) > 240
    chroma = [cv2.cvtColor(a, cv2.COLOR_RGB2YCrCb)[:, :, 1:] for a in (colour, out)]
    inside = ((out > 0) & (out < 255)).all(axis=2)  # elsewhere a channel saturates
    np.testing.assert_allclose(chroma[0][inside], chroma[1][inside].astype(int), atol=2)


def test_what_shrinks_is_averaged_and_what_grows_is_interpolated():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (12, 20, 3), dtype=np.uint8)
    blocks = image.reshape(3, 4, 5, 4, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(prepare(image, size=(3, 5)), blocks, atol=0.51)
    wide = prepare(np.array([[[0], [100]]], np.uint8), size=(1, 8))[0, :, 0]
    centres = ((np.arange(8) + 0.5) / 4 - 0.5).clip(0, 1)
    np.testing.assert_allclose(wide, 100 * centres, atol=1)
    image = np.zeros((8, 2, 1), np.uint8)
    image[::2] = 200  # rows average to 100
    out = prepare(image, size=(2, 6))
    np.testing.assert_array_equal(out, np.full((2, 6, 1), 100))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("equalize", [False, True])
@pytest.mark.parametrize("crop", [None, (20, 30), (12, 12)])
@pytest.mark.parametrize("shape", [(40, 90), (200, 130), (21, 500), (300, 30), (9, 8)])
def test_shrinking_first_changes_nothing(channels, equalize, crop, shape):
    if crop and (crop[0] > shape[0] or crop[1] > shape[1]):
        crop = None
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*shape, channels), dtype=np.uint8)
    how = NetworkInput((16, 24), channels, crop=crop, equalize=equalize)
    small = how.shrink(image)
    np.testing.assert_array_equal(how.prepare(small), how.prepare(image))
    assert small.size <= image.size


def test_only_what_is_much_too_large_is_shrunk():
    image = np.zeros((32, 48, 1), np.uint8)
    assert NetworkInput((16, 24), 1).shrink(image) is image
    assert NetworkInput((15, 24), 1).shrink(image).shape == (15, 24, 1)
    assert NetworkInput((4, 4), 1, equalize=True).shrink(image) is image
    assert NetworkInput((4, 4), 1, crop=(8, 9)).shrink(image) is image
