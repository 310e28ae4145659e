"""Reading image files: safely, within limits, always to uint8 (C, H, W)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from preceptor.core import PreceptorError

MAX_PIXELS = (
    64_000_000  # below Pillow's own warning, so that a decompression bomb is refused and not warned of
)
MAX_FILE_BYTES = 256 * 2**20
SUFFIXES = frozenset(".png .jpg .jpeg .jpe .jfif .bmp .gif .webp .ppm .pgm .pbm .pnm .tif .tiff".split())
FOREIGN = frozenset(".heic .heif .avif .jxl .jp2".split())  # of formats that are not read
# Only raster formats that Pillow decodes by itself: EPS, for one, would start another program.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")  # Pillow opens MPO as JPEG


def read_bytes(path: Path) -> bytes:
    """The file's content, refused above the size limit."""
    if not path.is_file():
        if path.is_symlink() and not path.exists():
            raise PreceptorError(f"{path} is a link that leads nowhere; mend it or remove it")
        what = "is a folder" if path.is_dir() else "does not exist"
        raise PreceptorError(f"{path} {what}; name an image file")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise PreceptorError(
            f"{path} has {size} bytes and the limit is {MAX_FILE_BYTES}; shrink it or remove it"
        )
    return path.read_bytes()


def decode(content: bytes, name: str, channels: int | None = None) -> np.ndarray:
    """Decode one image to uint8 (C, H, W).

    Args:
        content: The encoded file.
        name: What to call it in an error.
        channels: 1 or 3; without it, grey files give 1 channel and all others 3.

    Transparent pixels become white and the camera's orientation mark is obeyed.
    """
    with _told(name), Image.open(io.BytesIO(content), formats=FORMATS) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise PreceptorError(
                f"{name} has {width} x {height} px, the limit is {MAX_PIXELS}; shrink it or remove it"
            )
        return pixels_of(image, name, channels)


def pixels_of(image: Image.Image, name: str, channels: int | None = None) -> np.ndarray:
    """An image of Pillow as uint8 (C, H, W), as `decode` gives it for a file."""
    with _told(name):
        image.load()
        pixels = np.asarray(_flatten(image, channels))
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Whatever Pillow raises becomes a sentence about the image."""
    try:
        yield
    except PreceptorError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise PreceptorError(
            f"{name} is larger than the limit of {MAX_PIXELS} px; shrink it or remove it"
        ) from error
    except Exception as error:  # Pillow's decoders raise many kinds, each meaning that the file is not sound
        cure = "save it as JPEG or PNG" if Path(name).suffix.lower() in FOREIGN else "mend it"
        raise PreceptorError(
            f"{name} cannot be read as an image ({_reason(error)}); {cure} or remove it"
        ) from error


def _flatten(image: Image.Image, channels: int | None) -> Image.Image:
    """Upright and in mode L or RGB."""
    # Pillow opens a PGM of more than 8 bits as mode I and spreads its values over 16 bits.
    sixteen_bits = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")
    if image.mode in ("I", "F") and not sixteen_bits:  # Pillow would cut all above 255 off
        raise ValueError(f"its pixels are 32-bit numbers, mode {image.mode}; save it with 8 or 16 bits")
    image = ImageOps.exif_transpose(image)
    if sixteen_bits:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        opaque = image.convert("RGBA")
        white = Image.new("RGBA", opaque.size, (255, 255, 255, 255))
        flat = Image.alpha_composite(white, opaque)
        image = flat.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    if channels is None:
        channels = 1 if image.mode in ("L", "1") else 3
    return image.convert("L" if channels == 1 else "RGB")


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return "unknown or damaged format" if "BytesIO" in text else text or type(error).__name__


def fit(pixels: np.ndarray, size: int) -> np.ndarray:
    """Bring the shorter side to `size` and cut the middle square: (C, H, W) -> (C, size, size)."""
    _, height, width = pixels.shape
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    return resize_box(pixels, (left, top, left + side, top + side), size, size)


def resize_box(
    pixels: np.ndarray, box: tuple[float, float, float, float], height: int, width: int
) -> np.ndarray:
    """Antialiased bilinear resize of the box (left, top, right, bottom): (C, H, W) -> (C, height, width)."""
    if box == (0, 0, width, height) and pixels.shape[1:] == (height, width):
        return pixels
    image = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0))
    resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, box=box))
    return resized[None] if resized.ndim == 2 else np.ascontiguousarray(resized.transpose(2, 0, 1))
