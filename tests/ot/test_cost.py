import numpy as np
import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import class_centers, classifier_centers, cost_matrix, unit_rows

FEATURES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0], [7.0, 8.0]])


def test_centers_are_the_means_of_their_classes():
    centers = class_centers(FEATURES, torch.tensor([0, 2, 1, 2]), 3)
    assert_close(centers, torch.tensor([[1.0, 2.0], [5.0, 0.0], [5.0, 6.0]]))


def test_centers_of_many_samples_keep_their_digits():
    features = torch.full((200_000, 1), 0.1)
    assert_close(
        class_centers(features, torch.zeros(200_000, dtype=torch.int32), 1), features[:1], rtol=1e-7, atol=0
    )


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0, 2, 0, 2], 3, r"^no sample of class 1 came; every class needs at least one for its centre$"),
        ([0, 0, 0, 0], 3, r"^no sample of classes 1, 2 came"),
        ([0] * 4, 20, r"classes 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 … came"),
        ([0, 1, 2, 3], 3, r"^labels from 0 to 3 came for 3 classes; labels must lie between 0 and 2$"),
        ([0, 1, -1, 2], 3, r"^labels from -1 to 2 came for 3 classes"),
        (
            [0, 1, 2],
            3,
            r"^labels of shape \(3,\) came with features of shape \(4, 2\); give one label for each row",
        ),
    ],
)
def test_wrong_labels_are_named(labels, classes, message):
    with pytest.raises(ValueError, match=message):
        class_centers(FEATURES, torch.tensor(labels), classes)


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.zeros(4, dtype=torch.bool)])
def test_labels_must_be_integers(labels):
    with pytest.raises(
        TypeError, match=r"^labels of type torch\.\w+ came, integers were expected; call labels\.long"
    ):
        class_centers(FEATURES, labels, 1)


def test_no_samples_leave_every_class_empty():
    with pytest.raises(ValueError, match="no sample of classes 0, 1 came"):
        class_centers(FEATURES[:0], torch.zeros(0, dtype=torch.int64), 2)


def test_classifier_rows_become_unit_centers():
    weight = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    assert_close(classifier_centers(weight), torch.tensor([[0.6, 0.8], [0.0, -1.0]]))
    assert_close(classifier_centers(weight, normalize=False), weight)
    with pytest.raises(ValueError, match=r"weight has a zero vector at class 1, .*use normalize=False"):
        classifier_centers(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_cost_is_the_euclidean_distance():
    teacher, student = (
        torch.tensor([[3.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[0.0, 4.0], [3.0, 0.0], [2.0, 2.0]]),
    )
    raw = cost_matrix(teacher, student, normalize=False)
    assert_close(raw, torch.tensor([[5.0, 0.0, 5**0.5], [3.0, 10**0.5, 5**0.5]]))
    unit = cost_matrix(teacher, student)
    near = (2 - 2**0.5) ** 0.5
    assert_close(unit, torch.tensor([[2**0.5, 0.0, near], [0.0, 2**0.5, near]]))


def test_centred_cost_forgets_where_each_side_lies():
    generator = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(5, 8, generator=generator), torch.randn(4, 8, generator=generator)
    moved = cost_matrix(teacher + 3, student - 7, normalize=False, center=True)
    assert_close(moved, cost_matrix(teacher, student, normalize=False, center=True), rtol=1e-4, atol=1e-4)
    by_hand = torch.cdist(teacher - teacher.mean(0), student - student.mean(0))
    assert_close(moved, by_hand, rtol=1e-4, atol=1e-4)
    unit = cost_matrix(teacher, student, center=True)
    left, right = teacher - teacher.mean(0), student - student.mean(0)
    by_hand = torch.cdist(left / left.norm(dim=1, keepdim=True), right / right.norm(dim=1, keepdim=True))
    assert_close(unit, by_hand, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.1, 3.7, 1e6 / 3])
def test_what_rounding_leaves_of_equal_centers_is_no_direction(scale, dtype):
    equal = (torch.full((7, 3), scale, dtype=torch.float64) * torch.tensor([1, 1.3, 0.11])).to(dtype)
    equal[::2] *= 1 + torch.finfo(dtype).eps  # means of as many samples differ by as much
    others = torch.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=dtype)
    cost = cost_matrix(others, equal, center=True, zero_rows="origin")
    assert_close(cost, torch.ones(2, 7, dtype=dtype))
    with pytest.raises(ValueError, match="student_centers has a zero vector at class 0"):
        cost_matrix(others, equal, center=True)


def test_shared_classes_cost_exactly_nothing():
    centers = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) + 100
    assert_close(cost_matrix(centers, centers).diagonal(), torch.zeros(50), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_float32(kind):
    generator = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(5, 8, generator=generator), torch.randn(4, 8, generator=generator)
    teacher, student = teacher.to(kind), student.to(kind)
    assert_close(cost_matrix(teacher, student), cost_matrix(teacher.float(), student.float()))
    assert cost_matrix(teacher, student, normalize=False, center=True).dtype == torch.float32


def test_a_zero_row_may_stay_at_the_origin():
    points = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    units = unit_rows(points, zero_rows="origin")
    assert_close(units, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert bool(torch.autograd.grad(units.sum(), points)[0].isfinite().all())
    cost = cost_matrix(points.detach(), torch.eye(2), zero_rows="origin")
    assert_close(cost[1], torch.ones(2))
    with pytest.raises(ValueError, match=r"^rows has a zero vector at class 1, which has no direction"):
        unit_rows(points, "rows")


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_units_of_rows_whose_squares_leave_the_range(scale):
    points = torch.tensor([[3.0, 4.0], [-5.0, 0.0]])
    assert_close(unit_rows(points * scale), torch.tensor([[0.6, 0.8], [-1.0, 0.0]]))


def test_mixed_precision_is_promoted():
    assert cost_matrix(torch.eye(2), torch.eye(2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("teacher", "student", "error", "message"),
    [
        (
            torch.ones(2, 3),
            torch.ones(2, 4),
            ValueError,
            "with 3 features and student_centers with 4 came; both must",
        ),
        (
            torch.ones(3),
            torch.ones(2, 3),
            ValueError,
            r"^teacher_centers of shape \(3,\) came; \(rows, features\)",
        ),
        (torch.ones(2, 0), torch.ones(2, 0), ValueError, r"^teacher_centers of shape \(2, 0\) came"),
        (
            torch.ones(2, 3),
            torch.ones(2, 3).long(),
            TypeError,
            "^student_centers of type torch.int64 came, floating",
        ),
        (
            torch.ones(2, 3),
            torch.full((2, 3), torch.nan),
            ValueError,
            "^student_centers has NaN or infinity in row 0",
        ),
        (torch.ones(2, 3), torch.zeros(2, 3), ValueError, "^student_centers has a zero vector at class 0"),
        (
            torch.ones(2, 3),
            torch.ones(2, 3, device="meta"),
            ValueError,
            "^teacher_centers are on cpu and student_centers on meta; move them to one device$",
        ),
        (
            torch.ones(2, 3),
            np.ones((2, 3)),
            TypeError,
            "^student_centers of type ndarray came; a torch tensor",
        ),
        ([[1.0, 2.0]], torch.ones(1, 2), TypeError, "^teacher_centers of type list came; a torch tensor was"),
    ],
)
def test_wrong_centers_are_named(teacher, student, error, message):
    with pytest.raises(error, match=message):
        cost_matrix(teacher, student)


@pytest.mark.parametrize(("name", "value"), [("features", np.zeros((3, 2))), ("labels", [0, 1, 2])])
def test_arrays_and_lists_are_no_tensors(name, value):
    call = {"features": torch.zeros(3, 2), "labels": torch.arange(3), "num_classes": 3, name: value}
    with pytest.raises(TypeError, match=f"{name} of type {type(value).__name__} came; a torch tensor was"):
        class_centers(**call)
