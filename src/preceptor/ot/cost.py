"""Class centres and the cost matrix between the teacher's and the student's classes: Eq. (6), (7), (8)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from .validation import check_finite, check_tensors

ZeroRows = Literal["refuse", "origin"]


def class_centers(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The mean feature of each class, Eq. (6).

    Args:
        features: (N, d) what the teacher's representation network says about the student's samples.
        labels: (N,) integer classes, 0 to `num_classes` - 1.
        num_classes: how many classes there are.

    Returns:
        (num_classes, d) centres, not normalised: `cost_matrix` does that where it is asked to.
    """
    _check_rows(features, "features")
    check_tensors(labels=labels)
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} came with features of shape {tuple(features.shape)}; "
            f"give one label for each row of features"
        )
    if labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise TypeError(f"labels of type {labels.dtype} came, integers were expected; call labels.long()")
    labels = labels.to(device=features.device, dtype=torch.int64)
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise ValueError(
            f"labels from {int(labels.min())} to {int(labels.max())} came for {num_classes} classes; "
            f"labels must lie between 0 and {num_classes - 1}"
        )
    counts = torch.bincount(labels, minlength=num_classes)
    empty = torch.nonzero(counts == 0).flatten().tolist()
    if empty:
        shown = ", ".join(map(str, empty[:10])) + (" …" if len(empty) > 10 else "")
        word = "class" if len(empty) == 1 else "classes"
        raise ValueError(f"no sample of {word} {shown} came; every class needs at least one for its centre")
    # Summed in double precision: with many samples a class float32 sums lose the last digits.
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.double())
    return (sums / counts[:, None]).to(features.dtype)


def classifier_centers(weight: Tensor, normalize: bool = True) -> Tensor:
    """The rows of the teacher's last linear layer as class centres, Eq. (8).

    Args:
        weight: (C_T, d), laid out as `torch.nn.Linear.weight`.
        normalize: put each row on the unit sphere, as Eq. (8) does.

    Returns:
        (C_T, d) centres.
    """
    _check_rows(weight, "weight")
    return unit_rows(weight, "weight") if normalize else weight


def cost_matrix(
    teacher_centers: Tensor,
    student_centers: Tensor,
    normalize: bool = True,
    center: bool = False,
    zero_rows: ZeroRows = "refuse",
) -> Tensor:
    """Euclidean distances between the teacher's and the student's class centres, Eq. (7).

    Args:
        teacher_centers: (C_T, d)
        student_centers: (C_S, d) in the same feature space.
        normalize: put both sides on the unit sphere first. Eq. (8) normalises the teacher's side only, which
            mixes a unit sphere with raw features when the other side is Eq. (6): see docs/notation.md.
        center: subtract each side's mean centre before that, which widens the spread of the costs.
        zero_rows: what to do with a centre of zeros on its way to the sphere, as in `unit_rows`.

    Returns:
        (C_T, C_S) costs, in float32 where half precision came: distances are not to be had in it.
    """
    check_tensors(teacher_centers=teacher_centers, student_centers=student_centers)
    if teacher_centers.device != student_centers.device:
        raise ValueError(
            f"teacher_centers are on {teacher_centers.device} and student_centers on "
            f"{student_centers.device}; move them to one device"
        )
    _check_rows(teacher_centers, "teacher_centers")
    _check_rows(student_centers, "student_centers")
    if teacher_centers.shape[1] != student_centers.shape[1]:
        raise ValueError(
            f"teacher_centers with {teacher_centers.shape[1]} features and student_centers with "
            f"{student_centers.shape[1]} came; both must come from the same representation network"
        )
    given = torch.promote_types(teacher_centers.dtype, student_centers.dtype)
    precision = torch.promote_types(given, torch.float32)
    teacher = placed(teacher_centers.to(precision), "teacher_centers", normalize, center, zero_rows)
    student = placed(student_centers.to(precision), "student_centers", normalize, center, zero_rows)
    # Differences, not the expanded square: the distance of a shared class has to be exactly zero.
    return torch.cdist(teacher, student, compute_mode="donot_use_mm_for_euclid_dist")


def placed(
    points: Tensor, name: str, normalize: bool = True, center: bool = False, zero_rows: ZeroRows = "refuse"
) -> Tensor:
    """One side's centres (C, d) where distances are taken: about their mean, on the unit sphere."""
    if center:
        points = _about_mean(points)
    return unit_rows(points, name, zero_rows) if normalize else points


def _about_mean(points: Tensor) -> Tensor:
    """Rows less their mean; zeros where rounding is all that is left of equal rows, as it is no direction."""
    centred = points - points.mean(dim=0, keepdim=True)
    before, after = (torch.linalg.vector_norm(each, dim=1, dtype=torch.float64) for each in (points, centred))
    rounding = (1e-6 if points.dtype == torch.float32 else 1e-12) * before.amax()
    return centred * (after > rounding)[:, None]


def unit_rows(points: Tensor, name: str = "points", zero_rows: ZeroRows = "refuse") -> Tensor:
    """Rows (N, d) divided by their norm, which is taken in float64: squares leave float32's range early.

    Args:
        points: (N, d)
        name: what the caller calls them, for the error.
        zero_rows: "refuse" raises where a row has no direction; "origin" leaves it there, 1 away from the sphere. A
            teacher to which all classes look alike has such rows: it says nothing, and its costs show it.
    """
    norms = torch.linalg.vector_norm(points, dim=1, keepdim=True, dtype=torch.float64)
    zero = norms == 0
    if zero_rows == "refuse" and bool(zero.any()):
        raise ValueError(
            f"{name} has a zero vector at class {int(torch.nonzero(zero)[0, 0])}, which has no direction; "
            f"use normalize=False or another centre for it"
        )
    return (points / torch.where(zero, 1, norms)).to(points.dtype)


def _check_rows(points: Tensor, name: str) -> None:
    check_tensors(**{name: points})
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"{name} of shape {tuple(points.shape)} came; (rows, features) was expected")
    if not points.dtype.is_floating_point:
        raise TypeError(f"{name} of type {points.dtype} came, floating point was expected; call .float()")
    check_finite(**{name: points})
