"""A folder of class folders, with `train/` and `test/` (`val/` where there is no `test/`), or one level.

The parts have several usual names (`PARTS`), in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from preceptor.core import PreceptorError
from preceptor.data.images import FOREIGN, SUFFIXES
from preceptor.data.scan import ImageFile, scan
from preceptor.data.split import FileStore, Split
from preceptor.wording import listed

ON_BAD_IMAGE = ("fail", "skip")
LOOKED_AT = SUFFIXES | FOREIGN  # what cannot be read is a bad image, and not left out in silence
PARTS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation"),
}
Select = Callable[[tuple[str, ...]], tuple[str, ...]]


def read_folder(
    root: Path, select: Select, on_bad_image: str
) -> tuple[Split, Split | None, tuple[str, ...], tuple[str, ...]]:
    """Train split, test split (None where the folder has one level), class names, names of bad images.

    Args:
        root: The folder.
        select: Which of the classes to read, and in which order.
        on_bad_image: "fail" names the damaged files in an error; "skip" leaves them out and names them.
    """
    parts = _parts(root)
    classes = select(_class_folders(parts[0]))
    if len(parts) == 2:
        unknown = sorted(set(_class_folders(parts[1])) - set(_class_folders(parts[0])))
        if unknown:
            raise PreceptorError(
                f"{parts[1]} has the class {unknown[0]!r} that {parts[0]} has not; "
                "add its training images or remove it"
            )
    listed: list[tuple[str, int, int]] = []  # (file name, label, part)
    for part, base in enumerate(parts):
        for name in sorted(classes):  # one order of samples, whatever the order of the chosen classes
            found = _image_files(base / name)
            if not found and part == 0:
                raise PreceptorError(
                    f"{base / name} has no images ({', '.join(sorted(SUFFIXES))}); add some or remove it"
                )
            listed += [(path.relative_to(root).as_posix(), classes.index(name), part) for path in found]
    files, bad = _scanned(root, [name for name, _, _ in listed], on_bad_image)
    store = FileStore(root, files)
    sound = np.array([file.shape is not None for file in files], dtype=bool)
    labels = np.array([label for _, label, _ in listed], dtype=np.int64)
    part_of = np.array([part for _, _, part in listed])
    splits = []
    for part in range(len(parts)):
        rows = np.flatnonzero(sound & (part_of == part))
        splits.append(Split(store, labels[rows], rows))
    return splits[0], splits[1] if len(parts) == 2 else None, classes, bad


def read_images(root: Path, on_bad_image: str) -> tuple[Split, tuple[str, ...]]:
    """All images below a folder, whatever its folders mean, with labels of 0; names of bad images."""
    files, bad = _scanned(
        root, [path.relative_to(root).as_posix() for path in _image_files(root)], on_bad_image
    )
    sound = [file for file in files if file.shape is not None]
    if not sound:
        raise PreceptorError(
            f"{root} has no images ({', '.join(sorted(SUFFIXES))}); name a folder that has some"
        )
    return Split(FileStore(root, sound), np.zeros(len(sound), dtype=np.int64)), bad


def _scanned(root: Path, names: list[str], on_bad_image: str) -> tuple[list[ImageFile], tuple[str, ...]]:
    """The files, and the names of the damaged ones; an error names those where they are not to be left out."""
    if on_bad_image not in ON_BAD_IMAGE:
        raise PreceptorError(f"on_bad_image is {on_bad_image!r}; use one of {', '.join(ON_BAD_IMAGE)}")
    files = scan(root, names)
    bad = tuple(file.name for file in files if file.shape is None)
    if bad and on_bad_image == "fail":
        raise PreceptorError(_complaint(root, files, len(bad)))
    return files, bad


def merged_folders(split: Split) -> list[str]:
    """Says so where folders within a class folder are no classes: their images count as the class's."""
    store = split.store
    if not isinstance(store, FileStore):
        return []
    base = _parts(store.root)[0]
    inside: dict[str, set[str]] = {}
    for row in split.rows.tolist():
        name, *deeper = (store.root / store.files[row].name).relative_to(base).parts[:-1]
        if deeper:
            inside.setdefault(name, set()).add(deeper[0])
    if not inside:
        return []
    name, folders = next(iter(inside.items()))
    others = f", likewise in {len(inside) - 1} more" if len(inside) > 1 else ""
    return [
        f"images in folders of class {name!r} ({listed(map(repr, sorted(folders)), 3)}) count as {name!r}{others}; "
        f"if these are the classes, give {base / name} instead"
    ]


def _parts(root: Path) -> list[Path]:
    """[train, test] or [root]."""
    found = {
        part: [root / name for name in _folders(root) if name.lower() in usual]
        for part, usual in PARTS.items()
    }
    tests = found["test"] or found["val"]
    if not found["train"]:
        for part in (*found["test"], *found["val"]):
            if _folders(part):
                raise PreceptorError(
                    f"{root} has {part.name}/ with folders in it but no train/; add one, or give {part} itself to have "
                    "it split"
                )
        return [root]
    for same in (found["train"], tests):
        if len(same) > 1:
            raise PreceptorError(
                f"{root} has both {same[0].name}/ and {same[1].name}/; rename or remove the one that is not meant"
            )
    train = found["train"][0]
    if tests:
        return [train, tests[0]]
    if _folders(train):
        raise PreceptorError(
            f"{root} has {train.name}/ but neither test/ nor val/; add one, or give {train} itself to have it split"
        )
    # Without class folders it is no part but a class (trains beside cars), unless it stands alone.
    return [root] if len(_folders(root)) > 1 else [train]


def _class_folders(folder: Path) -> tuple[str, ...]:
    names = _folders(folder)
    if not names:
        raise PreceptorError(f"{folder} has no class folders; expected one folder of images for each class")
    return names


def _folders(folder: Path) -> tuple[str, ...]:
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    for entry in entries:
        if entry.is_symlink() and not entry.exists() and entry.suffix.lower() not in LOOKED_AT:
            raise PreceptorError(
                f"{entry} is a link that leads nowhere, where a folder may be missing; mend it or remove it"
            )
    return tuple(sorted(_readable(entry.name) for entry in entries if entry.is_dir()))


def _readable(name: str) -> str:
    """The name, which other systems' archives may have in an encoding that no text can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PreceptorError(
            f"the name {os.fsencode(name)!r} is not UTF-8; rename it (convmv -f latin1 -t utf8 renames whole folders)"
        ) from None
    return name


def _image_files(folder: Path) -> list[Path]:
    """The images below a folder, in linked folders as well; each folder once, for a link may lead back."""
    found, seen = [], set()
    for base, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        place = os.path.realpath(base)
        if place in seen:
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(base) / _readable(name)
            for name in sorted(names)
            if not name.startswith(".") and Path(name).suffix.lower() in LOOKED_AT
        ]
    return found


def _refuse(error: OSError) -> None:
    if isinstance(error, PermissionError):  # a folder that may not be read is not an empty one
        raise error


def _complaint(root: Path, files: list[ImageFile], count: int) -> str:
    first = [file for file in files if file.shape is None][:3]
    named = "; ".join(file.problem for file in first) + ("; …" if count > len(first) else "")
    found = f"{count} of {len(files)} images in {root} cannot be used: {named}"
    return f"{found}; --on-bad-image skip leaves such files out and names them"
