import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import SinkhornLoss, sinkhorn, sinkhorn_loss
from tests.oracles.ot import problem


def test_the_loss_is_the_mean_distance_of_softened_predictions():
    _, _, cost = problem(6, 7, 5, dtype=torch.float32)
    teacher, student = torch.randn(6, 7), torch.randn(6, 5)
    expected = sinkhorn(torch.softmax(teacher / 2, 1), torch.softmax(student / 2, 1), cost, 0.3).value
    assert_close(sinkhorn_loss(student, teacher, cost, 0.3, 2.0), expected.mean())
    assert_close(sinkhorn_loss(student, teacher, cost, 0.3, 2.0, reduction="none"), expected)
    default = sinkhorn(torch.softmax(teacher / 3, 1), torch.softmax(student / 3, 1), cost, 0.1).value
    assert_close(sinkhorn_loss(student, teacher, cost), default.mean())


def test_precisions_are_promoted():
    _, _, cost = problem(6, 7, 5)
    loss = sinkhorn_loss(torch.randn(6, 5).bfloat16(), torch.randn(6, 7).half(), cost)
    assert loss.dtype == torch.float32
    assert sinkhorn_loss(torch.randn(6, 5), torch.randn(6, 7).double(), cost.float()).dtype == torch.float64


def test_a_cost_keeps_its_digits_beside_logits_of_less_precision():
    _, _, cost = problem(6, 7, 5)
    teacher, student = torch.randn(6, 7), torch.randn(6, 5, requires_grad=True)
    near, far = (
        torch.autograd.grad(sinkhorn_loss(student, teacher, costs), student)
        for costs in (cost, cost + 2.0**27)
    )
    assert_close(near, far, atol=1e-7, rtol=0)


def test_the_mean_over_an_empty_batch_is_torchs():
    nothing = torch.zeros(0, 3)
    assert sinkhorn_loss(nothing, nothing, torch.eye(3)).isnan()
    assert sinkhorn_loss(nothing, nothing, torch.eye(3), reduction="none").shape == (0,)


def test_the_module_holds_cost_and_weight():
    _, _, cost = problem(6, 7, 5, dtype=torch.float32)
    teacher, student = torch.randn(6, 7), torch.randn(6, 5)
    module = SinkhornLoss(cost, epsilon=0.2, temperature=4.0, weight=10.0)
    assert_close(module(student, teacher), 10 * sinkhorn_loss(student, teacher, cost, 0.2, 4.0))
    assert list(module.state_dict()) == ["cost"]
    expected = module(student, teacher)
    cost.zero_()  # a copy was kept
    assert_close(module(student, teacher), expected)
    assert list(module.parameters()) == []
    assert repr(module) == "SinkhornLoss(epsilon=0.2, temperature=4.0, weight=10.0)"


@pytest.mark.parametrize("name", ["student_logits", "teacher_logits"])
def test_logits_that_are_no_numbers_are_named_as_the_caller_names_them(name):
    logits = {"student_logits": torch.zeros(4, 3), "teacher_logits": torch.zeros(4, 2)}
    logits[name][2, 1] = float("nan")
    with pytest.raises(ValueError, match=f"{name} has NaN or infinity in row 2; finite values were expected"):
        sinkhorn_loss(**logits, cost=torch.ones(2, 3))
