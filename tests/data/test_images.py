import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from preceptor.core import PreceptorError
from preceptor.data import Task
from preceptor.data import images as images_module

LAYOUT = {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1}


def test_bad_images_are_refused_or_named_and_skipped(make_folder):
    root = make_folder(LAYOUT)
    whole = (root / "train" / "cat" / "001.png").read_bytes()
    (root / "train" / "cat" / "001.png").write_bytes(whole[: len(whole) // 2])
    (root / "test" / "cat" / "000.png").write_bytes(b"")
    with pytest.raises(
        PreceptorError,
        match=r"2 of 7 images .* cannot be used: train/cat/001.png cannot be read as an image .*--on-bad-image skip",
    ):
        Task(root)
    task = Task(root, on_bad_image="skip")
    assert task.bad_images == ("train/cat/001.png", "test/cat/000.png")
    assert (len(task.train), len(task.test)) == (4, 1)
    assert [task.train.path(i)[-11:] for i in range(2)] == ["cat/000.png", "cat/002.png"]
    with pytest.raises(PreceptorError, match="use one of fail, skip"):
        Task(root, on_bad_image="ignore")


def test_photographs_in_formats_that_are_not_read_are_bad_images_like_any_other(make_folder):
    root = make_folder(LAYOUT)
    for name in ("phone.heic", "web.AVIF"):
        (root / "train" / "cat" / name).write_bytes(b"\0\0\0\x1cftypheic")
    with pytest.raises(
        PreceptorError,
        match=r"2 of 9 images .*: train/cat/phone.heic cannot be read .*; save it as JPEG or PNG or remove it; .*AVIF",
    ):
        Task(root)
    task = Task(root, on_bad_image="skip")
    assert task.bad_images == ("train/cat/phone.heic", "train/cat/web.AVIF")
    assert len(task.train) == 5


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("JPEG", ".jfif"), ("JPEG", ".jpe"), ("JPEG", ".heic"), ("PPM", ".pnm"), ("PPM", ".PBM")],
)
def test_a_format_that_is_read_is_read_under_all_its_names(make_folder, kind, suffix):
    """Telephones also give plain JPEG files names that end in .heic."""
    root = make_folder(LAYOUT)
    with Image.open(root / "train" / "cat" / "000.png") as image:
        image.save(root / "train" / "cat" / f"more{suffix}", format=kind)
    task = Task(root)
    assert task.bad_images == ()
    assert len(task.train) == 6


def test_skipping_a_whole_class_is_refused(make_folder):
    root = make_folder({"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    (root / "train" / "a" / "000.png").write_bytes(b"x")
    with pytest.raises(PreceptorError, match="no train samples of class 'a'"):
        Task(root, on_bad_image="skip")


def bomb(width, height):
    """A PNG of a few bytes that claims many pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])  # above our limit, Pillow's warning, Pillow's error
def test_decompression_bombs_are_refused_before_decoding(make_folder, side):
    root = make_folder(LAYOUT)
    (root / "train" / "dog" / "000.png").write_bytes(bomb(side, side))
    with pytest.raises(PreceptorError, match=r"1 of 7 images .*limit .*64000000.*; shrink it or remove it"):
        Task(root)
    assert Task(root, on_bad_image="skip").bad_images == ("train/dog/000.png",)


def test_sound_images_above_the_limit_are_refused(monkeypatch):
    content = encoded(Image.new("L", (8, 8)))
    assert images_module.decode(content, "x").shape == (1, 8, 8)
    monkeypatch.setattr(images_module, "MAX_PIXELS", 63)
    with pytest.raises(PreceptorError, match="x has 8 x 8 px, the limit is 63"):
        images_module.decode(content, "x")


def test_large_files_and_foreign_formats_are_refused(monkeypatch, tmp_path):
    with pytest.raises(PreceptorError, match="cannot be read as an image"):
        images_module.decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "x.png")
    with pytest.raises(PreceptorError, match="cannot be read as an image"):
        images_module.decode(encoded(Image.new("L", (8, 8)), "PCX"), "x.png")  # sound, but not on the list
    (tmp_path / "x.png").write_bytes(b"0" * 20)
    monkeypatch.setattr(images_module, "MAX_FILE_BYTES", 10)
    with pytest.raises(PreceptorError, match="has 20 bytes and the limit is 10"):
        images_module.read_bytes(tmp_path / "x.png")


def encoded(image, kind="PNG", **options):
    import io

    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_transparency_orientation_palettes_and_depth():
    clear = Image.new("RGBA", (2, 3), (255, 0, 0, 0))
    assert (images_module.decode(encoded(clear), "x") == 255).all()
    for mode in ("1", "L"):
        pixels = images_module.decode(encoded(Image.new(mode, (2, 3)), transparency=0), "x")
        assert pixels.tolist() == [[[255, 255]] * 3], "grey with a clear shade stays grey"
    palette = Image.new("P", (2, 3))
    palette.info["transparency"] = b"\x00"
    assert images_module.decode(encoded(palette, transparency=b"\x00"), "x").shape == (3, 3, 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    assert images_module.decode(encoded(Image.new("RGB", (2, 3)), "JPEG", exif=exif), "x").shape == (3, 2, 3)
    deep = Image.fromarray(np.full((3, 2), 0x8000, dtype=np.uint16))
    assert (images_module.decode(encoded(deep), "x") == 0x80).all()
    assert images_module.decode(encoded(Image.new("L", (2, 3))), "x", channels=3).shape == (3, 3, 2)
    assert images_module.decode(encoded(Image.new("CMYK", (2, 3)), "JPEG"), "x").shape == (3, 3, 2)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 an archive", b"plain text"])
def test_what_is_no_image_is_called_so(content):
    with pytest.raises(
        PreceptorError, match=r"^x cannot be read as an image \(unknown or damaged format\); mend it"
    ):
        images_module.decode(content, "x")


def test_a_missing_image_and_a_folder_are_sentences(tmp_path):
    with pytest.raises(PreceptorError, match=r"x\.png does not exist; name an image file"):
        images_module.read_bytes(tmp_path / "x.png")
    with pytest.raises(PreceptorError, match="is a folder; name an image file"):
        images_module.read_bytes(tmp_path)


@pytest.mark.parametrize("target", ["gone.png", "000.png"])
def test_a_link_that_leads_nowhere_is_a_bad_image_like_any_other(make_folder, target):
    root = make_folder(LAYOUT)
    (root / "train" / "cat" / "000.png").unlink()
    (root / "train" / "cat" / "000.png").symlink_to(target)
    with pytest.raises(
        PreceptorError,
        match=r"1 of 7 images .*cat/000\.png is a link that leads nowhere; .*--on-bad-image skip",
    ):
        Task(root)
    task = Task(root, on_bad_image="skip")
    assert task.bad_images == ("train/cat/000.png",)
    assert len(task.train) == 4


def test_a_link_that_leads_somewhere_again_is_read(make_folder, tmp_path):
    root = make_folder(LAYOUT)
    image = root / "train" / "cat" / "000.png"
    image.rename(tmp_path / "away.png")
    image.symlink_to(tmp_path / "kept.png")
    assert Task(root, on_bad_image="skip").bad_images == ("train/cat/000.png",)
    (tmp_path / "away.png").rename(tmp_path / "kept.png")
    assert len(Task(root).train) == 5


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"P5\n2 1\n65535\n" + struct.pack(">2H", 0, 30_000), [0, 117]),
        (b"P5\n2 1\n4095\n" + struct.pack(">2H", 2048, 4095), [128, 255]),
        (b"P2\n2 1\n4095\n2048 4095\n", [128, 255]),
        (b"P5\n2 1\n255\n\x07\xff", [7, 255]),
    ],
)
def test_a_pgm_is_read_by_its_own_maximum(content, shown):
    assert images_module.decode(content, "x.pgm").tolist() == [[shown]]


@pytest.mark.parametrize(("kind", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_pixels_of_32_bits_are_refused_rather_than_cut_off(tmp_path, kind, mode):
    Image.fromarray(np.full((4, 4), 40_000, dtype=kind)).save(tmp_path / "a.tif")
    with pytest.raises(PreceptorError, match=f"32-bit numbers, mode {mode}; save it with 8 or 16 bits"):
        images_module.decode((tmp_path / "a.tif").read_bytes(), "a.tif")
