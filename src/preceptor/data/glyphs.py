"""Characters rendered from the fonts that matplotlib ships: data for demonstrations, with no download.

``glyphs:TASK`` names an alphabet, or several joined by ``+``; options follow a question mark::

    glyphs:digits
    glyphs:letters+greek
    glyphs:digits?per_class=40&noise=0.3&seed=1

Images are 28 x 28, grey, uint8. The faces of the test part are not among those of the training part. A sample
depends on the options and on its own character only: "A" looks the same in `letters`, `upper` and `hex`.
"""

from __future__ import annotations

import functools
import string
from dataclasses import dataclass, fields
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont

from preceptor.core import PreceptorError
from preceptor.data.split import ArrayStore, Split
from preceptor.wording import hint

SIDE = 28
FINE = 2 * SIDE  # characters are transformed at twice the size and then averaged, so that edges stay smooth
WIDEST = 0.9  # of the frame

# Without omicron and the capitals that look just like Latin ones.
GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"

TASKS: dict[str, str] = {
    "digits": string.digits,
    "hex": string.digits + "ABCDEF",
    "upper-A-M": string.ascii_uppercase[:13],
    "upper-N-Z": string.ascii_uppercase[13:],
    "upper": string.ascii_uppercase,
    "lower-a-m": string.ascii_lowercase[:13],
    "lower-n-z": string.ascii_lowercase[13:],
    "lower": string.ascii_lowercase,
    "letters": string.ascii_uppercase + string.ascii_lowercase,
    "greek": GREEK,
}

TRAIN_FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "cmr10", "cmtt10",
)  # fmt: skip
TEST_FACES = (
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta",
    "cmb10", "cmss10", "cmti10",
)  # fmt: skip
LATIN_ONLY = ("cm",)  # Computer Modern has no Greek at Unicode's places


@dataclass(frozen=True)
class Options:
    """What may follow the question mark."""

    per_class: int = 400  # training images of each character
    test_per_class: int = 100
    noise: float = 0.22  # standard deviation, in units of the range from black to white
    jitter: float = 1.0  # strength of rotation, shear, scale and shift; 0 for none
    seed: int = 0


LIMITS = {
    "per_class": (1, 20_000),
    "test_per_class": (1, 20_000),
    "noise": (0, 4),
    "jitter": (0, 2),
    "seed": (0, 2**31),
}


def read_glyphs(name: str) -> tuple[Split, Split, tuple[str, ...]]:
    """Train split, test split and class names for what stands after ``glyphs:``."""
    characters, options = parse_glyphs(name)
    train = _split(characters, options, TRAIN_FACES, options.per_class, part=0)
    test = _split(characters, options, TEST_FACES, options.test_per_class, part=1)
    return train, test, tuple(characters)


def parse_glyphs(name: str) -> tuple[str, Options]:
    """The characters and the options that a name such as ``digits?per_class=40&noise=0.3`` means."""
    alphabet, _, query = name.partition("?")
    characters: dict[str, None] = {}
    for task in alphabet.split("+"):
        if task not in TASKS:
            there = f"there are {', '.join(TASKS)}"
            raise PreceptorError(
                f"there is no glyphs:{task}; {hint(task, TASKS, there)} (join several with +)"
            )
        characters |= dict.fromkeys(TASKS[task])
    return "".join(characters), _options(query)


def _options(query: str) -> Options:
    kinds: dict[str, type[int] | type[float]] = {
        field.name: int if isinstance(field.default, int) else float for field in fields(Options)
    }
    values: dict[str, float] = {}
    for pair in query.split("&") if query else ():
        key, _, text = pair.partition("=")
        if key not in kinds:
            raise PreceptorError(
                f"glyphs have no option {key!r}; expected {', '.join(kinds)}, as in digits?per_class=40"
            )
        low, high = LIMITS[key]
        try:
            values[key] = kinds[key](text)
        except ValueError:
            values[key] = float("nan")
        if not low <= values[key] <= high:
            raise PreceptorError(
                f"glyphs option {pair!r} is out of range; expected a number from {low} to {high}"
            )
    return Options(**values)  # type: ignore[arg-type]


def _split(characters: str, options: Options, faces: tuple[str, ...], count: int, part: int) -> Split:
    images = np.concatenate(
        [_samples(character, options, faces, count, part) for character in characters], dtype=np.uint8
    )
    return Split(ArrayStore(images), np.repeat(np.arange(len(characters)), count))


def _samples(character: str, options: Options, faces: tuple[str, ...], count: int, part: int) -> np.ndarray:
    """Images of one character: uint8 (count, 1, 28, 28)."""
    random = np.random.default_rng([options.seed, part, ord(character)])
    outlines = torch.from_numpy(_outlines(character, faces))  # (faces, 1, FINE, FINE)
    face = torch.from_numpy(random.integers(0, len(outlines), count))
    theta = torch.from_numpy(_affine(random, count, options.jitter))
    contrast = random.uniform(0.5, 1.0, (count, 1, 1, 1)).astype(np.float32)
    noise = random.standard_normal((count, 1, SIDE, SIDE), dtype=np.float32)
    ink = F.avg_pool2d(F.grid_sample(outlines[face], _grid(theta), align_corners=False), 2).numpy()
    grey = 0.2 + 0.6 * contrast * ink + options.noise * noise
    return np.round(255 * grey.clip(0, 1)).astype(np.uint8)


def _affine(random: np.random.Generator, count: int, jitter: float) -> np.ndarray:
    """Random maps from output to input coordinates: rotation, shear, scale, shift; float32 (count, 2, 3)."""
    angle = np.radians(15) * jitter * random.uniform(-1, 1, count)
    shear = 0.2 * jitter * random.uniform(-1, 1, count)
    scale = 1 / (1 + 0.2 * jitter * random.uniform(-1, 1, (2, count)))
    shift = 0.15 * jitter * random.uniform(-1, 1, (2, count))
    cos, sin = np.cos(angle), np.sin(angle)
    rows = [
        [scale[0] * cos, scale[0] * (shear * cos - sin), shift[0]],
        [scale[1] * sin, scale[1] * (shear * sin + cos), shift[1]],
    ]
    return np.array(rows, dtype=np.float32).transpose(2, 0, 1)


def _grid(theta: torch.Tensor) -> torch.Tensor:
    """Where each output pixel samples, (N, FINE, FINE, 2), by sums: torch's batched product is far slower."""
    centres = (2 * torch.arange(FINE) + 1) / FINE - 1
    rows, columns, shift = (theta[:, None, None, :, index] for index in (1, 0, 2))  # each (N, 1, 1, 2)
    return centres[None, None, :, None] * columns + centres[None, :, None, None] * rows + shift


@functools.lru_cache(maxsize=512)
def _outlines(character: str, faces: tuple[str, ...]) -> np.ndarray:
    """The character in every face that has it: float32 (faces, 1, FINE, FINE) in [0, 1]."""
    usable = [face for face in faces if character.isascii() or not face.startswith(LATIN_ONLY)]
    return np.stack([_render(character, face) for face in usable])[:, None]


def _render(character: str, face: str) -> np.ndarray:
    """White on black, on a common base line, centred left to right."""
    font = _font(face)
    left, _, right, _ = font.getbbox(character, anchor="ls")
    if right - left > WIDEST * FINE:  # a bold M or W would be cut off
        font = font.font_variant(size=font.size * WIDEST * FINE / (right - left))
        left, _, right, _ = font.getbbox(character, anchor="ls")
    image = Image.new("L", (FINE, FINE))
    place = ((FINE - left - right) / 2, 0.72 * FINE)
    ImageDraw.Draw(image).text(place, character, fill=255, font=font, anchor="ls")
    return np.asarray(image, dtype=np.float32) / 255


@functools.cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    # Sized by the height of a capital, since faces fill their em square differently.
    trial = ImageFont.truetype(path, 100)
    _, top, _, bottom = trial.getbbox("H", anchor="ls")
    return ImageFont.truetype(path, round(100 * 0.62 * FINE / (bottom - top)))
