"""Class names and preprocessing of ``preceptor zoo add``: files as editors write them, and numbers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from preceptor.cli.zoo_options import parse_preprocessing, read_classes
from preceptor.core import PreceptorError
from preceptor.zoo.preprocessing import as_preprocessing


@pytest.mark.parametrize(
    ("name", "content"),
    [("c.txt", "Käse\nbrød\n"), ("c.names", "Käse\nbrød\n"), ("c.json", '["Käse", "brød"]')],
)
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert read_classes(str(tmp_path / name)) == ["Käse", "brød"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(("name", "content"), [("c.txt", "Käse\nbrød\n"), ("c.json", '["Käse", "brød"]')])
def test_another_encoding_is_refused(tmp_path: Path, name: str, content: str, encoding: str) -> None:
    (tmp_path / name).write_text(content, encoding=encoding)
    with pytest.raises(PreceptorError, match=rf"{name}' are not written in UTF-8; save the file as UTF-8$"):
        read_classes(str(tmp_path / name))


def test_names_of_letters_that_all_encodings_share_are_refused_in_utf_16(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("cat\ndog\n", encoding="utf-16-le")  # bytes that UTF-8 could be, too
    with pytest.raises(PreceptorError, match="save the file as UTF-8"):
        read_classes(str(tmp_path / "c.txt"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"0": "cat"}', "holds no JSON list of names"),
        ("[1, 2]", "holds no JSON list"),
        ("cat, dog", "is no JSON"),
    ],
)
def test_a_json_file_of_another_kind_is_told_what_to_be(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(PreceptorError, match=rf'{reason}.*; write the names in .* as \["cat", "dog"\]$'):
        read_classes(str(tmp_path / "c.json"))


@pytest.mark.parametrize("size", ["3,nan,3", "3,inf,3", "3,64.7,64", "3,64.0,64", "", "3,,3", "1e9"])
def test_an_input_size_is_whole_numbers(size: str) -> None:
    for source in ("timm:x", "onnx:never-read.onnx"):
        with pytest.raises(PreceptorError, match=f"--input-size '{size}' is no list of whole numbers; write"):
            parse_preprocessing(source, size, None, None, None, "0", "1")


@pytest.mark.parametrize("size", ["999999999999999", "999999999999999,8,8", "-3,8,8", "0"])
def test_an_input_size_that_nothing_has_is_refused_before_it_fills_the_memory(size: str) -> None:
    with pytest.raises(
        PreceptorError, match=r"the preprocessing is not valid: input_size .* is out of bounds"
    ):
        parse_preprocessing("timm:x", size, None, None, None, "0", "1")


@pytest.mark.parametrize("mean", ["0x5", "half", "", "0.5;0.5"])
def test_a_mean_is_numbers_with_commas(mean: str) -> None:
    for option, values in (("--mean", (mean, "1")), ("--std", ("0", mean))):
        with pytest.raises(
            PreceptorError,
            match=rf"{option} '{mean}' is no list of numbers; write one for each channel, as 0\.",
        ):
            parse_preprocessing("timm:x", "3,8,8", None, None, None, *values)


@pytest.mark.parametrize(
    ("size", "resize", "crop", "mean", "reason"),
    [
        ("3,8,8", 0, None, "0", "at resize: "),
        ("3,8,8", -1, None, "0", "at resize: "),
        ("3,8,8", None, "", "0", "at crop: "),
        ("3,8,8", None, None, "nan", "at mean.0: "),
        ("3,8,8", None, None, "0,0,inf", "at mean.2: "),
        ("7", 9, None, "0", "feature vectors can be neither resized nor cropped"),
        ("7", None, "center", "0", "feature vectors can be neither resized nor cropped"),
    ],
)
def test_what_cannot_be_is_not_left_out_in_silence(
    size: str, resize: int | None, crop: str | None, mean: str, reason: str
) -> None:
    asked = parse_preprocessing("timm:x", size, resize, crop, None, mean, "1")
    with pytest.raises(PreceptorError, match=f"the preprocessing is not valid:? ?{reason}"):
        as_preprocessing(asked)
