"""The gradient three ways: the formula, automatic differentiation through the iterations, finite differences."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from preceptor.ot import SinkhornWarning, sinkhorn, sinkhorn_distance, sinkhorn_divergence, sinkhorn_loss
from tests.oracles.ot import entropic_value, log_domain, plan_of, problem

EPSILON = 0.1


def tangent(gradient: Tensor) -> Tensor:
    """A gradient on the simplex is defined up to a constant."""
    return gradient - gradient.mean(dim=1, keepdim=True)


def through_iterations(p: Tensor, q: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    alpha, beta = log_domain(p, q, cost, epsilon, 600)
    return entropic_value(plan_of(alpha, beta, cost, epsilon), cost, epsilon)


@pytest.mark.parametrize("kind", ["disjoint", "shared"])
def test_potentials_are_the_gradient_in_both_arguments(kind):
    p, q, cost = problem(4, 7, 6, kind=kind)
    p, q = p.requires_grad_(), q.requires_grad_()
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    ours = torch.autograd.grad(sinkhorn_distance(p, q, cost, EPSILON, 1e-10), (p, q), upstream)
    theirs = torch.autograd.grad(through_iterations(p, q, cost, EPSILON), (p, q), upstream)
    result = sinkhorn(p, q, cost, EPSILON, 1e-10)
    for gradient, unrolled, potential in zip(ours, theirs, (result.alpha, result.beta), strict=True):
        assert_close(gradient, upstream[:, None] * potential)
        assert_close(tangent(gradient), tangent(unrolled), atol=1e-7, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 3.0, 7.0])
def test_gradient_to_the_logits_has_the_factor_one_over_temperature(temperature):
    p, q, cost = problem(4, 7, 6)
    teacher, student = 3 * p.log(), (3 * q.log()).requires_grad_()

    def loss(logits: Tensor) -> Tensor:
        return sinkhorn_loss(logits, teacher, cost, EPSILON, temperature, reduction="none")

    (ours,) = torch.autograd.grad(loss(student).sum(), student)
    soft_teacher, soft = torch.softmax(teacher / temperature, 1), torch.softmax(student / temperature, 1)
    exact = sinkhorn(soft_teacher, soft, cost, EPSILON, 1e-10)
    # Prop. 4.2 with the factor that the paper leaves out.
    formula = (exact.beta - (exact.beta * soft).sum(1, keepdim=True)) * soft / temperature
    assert_close(ours, formula.detach(), atol=1e-5, rtol=5e-3)
    (unrolled,) = torch.autograd.grad(through_iterations(soft_teacher, soft, cost, EPSILON).sum(), student)
    assert_close(ours, unrolled, atol=1e-5, rtol=5e-3)


def test_gradient_agrees_with_finite_differences():
    p, q, cost = problem(2, 5, 4)

    def value(teacher: Tensor, student: Tensor) -> Tensor:
        return sinkhorn_distance(
            torch.softmax(teacher, 1), torch.softmax(student, 1), cost, EPSILON, 1e-12, 5000
        )

    inputs = (p.log().requires_grad_(), q.log().requires_grad_())
    assert torch.autograd.gradcheck(value, inputs, eps=1e-5, atol=1e-6, rtol=1e-4)


def test_gradient_with_zero_weights():
    # On the classes with mass it is the gradient of the smaller problem; nothing is NaN after a softmax.
    p, q, cost = problem(3, 7, 6)
    p[:, 2], q[:, [0, 4]] = 0, 0
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
    rows, columns = [0, 1, 3, 4, 5, 6], [1, 2, 3, 5]
    q.requires_grad_()
    (gradient,) = torch.autograd.grad(sinkhorn_distance(p, q, cost, EPSILON, 1e-10).sum(), q)
    assert bool(gradient.isfinite().all())
    small_p, small_q = p[:, rows], q.detach()[:, columns].requires_grad_()
    small_cost = cost[rows][:, columns]
    (unrolled,) = torch.autograd.grad(
        through_iterations(small_p, small_q, small_cost, EPSILON).sum(), small_q
    )
    assert_close(tangent(gradient[:, columns]), tangent(unrolled), atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_softmax_gives_finite_gradients(dtype):
    cost = problem(1, 6, 5, dtype=dtype)[2]
    student = torch.tensor([[2000.0, 0, 0, 0, 0], [0, -4000.0, 3.0, 0, 0]], dtype=dtype, requires_grad=True)
    teacher = torch.tensor([[0, 0, 0, 9000.0, 0, 0], [1.0, 0, 0, 0, 0, 0]], dtype=dtype)
    sinkhorn_loss(student, teacher, cost).backward()
    assert bool(student.grad.isfinite().all())
    assert_close(student.grad.sum(dim=1), torch.zeros(2, dtype=dtype), atol=1e-6, rtol=0)


def test_tolerance_bounds_the_error_of_the_gradient_at_the_default_epsilon():
    p, q, cost = problem(64, 40, 30)
    loose, exact = sinkhorn(p, q, cost).beta, sinkhorn(p, q, cost, tolerance=1e-10).beta
    weighted = [(beta - (beta * q).sum(1, keepdim=True)) * q for beta in (loose, exact)]
    gap = (weighted[0] - weighted[1]).norm(dim=1) / weighted[1].norm(dim=1)
    assert float(gap.max()) < 1e-2


def test_only_what_is_asked_for_is_computed():
    p, q, cost = problem(2, 5, 4)
    teacher = p.clone().requires_grad_()
    sinkhorn_distance(teacher, q, cost).sum().backward()
    assert teacher.grad is not None
    assert not sinkhorn_distance(p, q, cost).requires_grad
    value = sinkhorn_distance(p, q.requires_grad_(), cost)
    assert value.requires_grad
    assert torch.autograd.grad(value.detach().sum() + 0 * q.sum(), q)[0].abs().max() == 0


def test_a_second_derivative_is_an_error():
    p, q, cost = problem(2, 5, 4)
    q.requires_grad_()
    (gradient,) = torch.autograd.grad(sinkhorn_distance(p, q, cost).sum(), q, create_graph=True)
    with pytest.raises(
        RuntimeError, match=r"sinkhorn_distance can be differentiated once: .*leave out create_graph"
    ):
        gradient.sum().backward()
    # Nor is it dropped silently where another term has a second derivative.
    (gradient,) = torch.autograd.grad(
        sinkhorn_distance(p, q, cost).sum() + (q**3).sum(), q, create_graph=True
    )
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        gradient.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning")
def test_functional_transforms():
    p, q, cost = problem(4, 7, 6)

    def value(student: Tensor, teacher: Tensor) -> Tensor:
        return sinkhorn_distance(teacher[None], student[None], cost, EPSILON, 1e-9)[0]

    result = sinkhorn(p, q, cost, EPSILON, 1e-9)
    each = torch.func.vmap(torch.func.grad(value))(q, p)
    assert_close(tangent(each), tangent(result.beta), atol=1e-6, rtol=0)
    assert_close(torch.func.vmap(value)(q, p), result.value)
    assert_close(torch.func.vmap(value, in_dims=(1, None))(q.T, p[0])[0], result.value[0])
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        torch.func.grad(lambda x: torch.func.grad(value)(x, p[0]).sum())(q[0])
    with pytest.raises(RuntimeError, match="has no forward-mode derivative; use reverse mode"):
        torch.func.jvp(lambda x: value(x, p[0]), (q[0],), (q[0],))
    with pytest.raises(ValueError, match="under vmap needs one cost for all problems"):
        torch.func.vmap(lambda c: sinkhorn_distance(p, q, c))(torch.stack([cost, cost]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore::FutureWarning")
def test_compiled_and_eager_agree():
    p, q, cost = problem(4, 7, 6)
    student = q.log().requires_grad_()

    def loss(logits: Tensor) -> Tensor:
        return 2 * sinkhorn_loss(logits, p.log(), cost, EPSILON)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_close(compiled(student), loss(student))
    expected = torch.autograd.grad(loss(student), student)
    assert_close(torch.autograd.grad(compiled(student), student), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", ["compile", "export"])
def test_a_second_derivative_raises_in_graphs_too(way):
    p, q, cost = problem(4, 7, 6)
    p, q = p.requires_grad_(), q.requires_grad_()

    class Distance(torch.nn.Module):
        def forward(self, teacher: Tensor, student: Tensor) -> Tensor:
            return sinkhorn_distance(teacher, student, cost, EPSILON)

    if way == "compile":
        distance = torch.compile(Distance(), fullgraph=True, backend="eager")
    else:
        distance = torch.export.export(Distance(), (p.detach(), q.detach())).module()
    plain = torch.autograd.grad(distance(p, q).sum(), (p, q))
    expected = torch.autograd.grad(sinkhorn_distance(p, q, cost, EPSILON).sum(), (p, q))
    for found, right in zip(plain, expected, strict=True):
        assert_close(found, right)
    for side in (p, q):
        (gradient,) = torch.autograd.grad((distance(p, q) ** 2).sum(), side, create_graph=True)
        with pytest.raises(RuntimeError, match="can be differentiated once"):
            gradient.sum().backward()


def test_autocast_changes_nothing():
    p, q, cost = problem(4, 7, 6, dtype=torch.float32)
    layer = torch.nn.Linear(6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(q)
        assert logits.dtype == torch.bfloat16
        loss = sinkhorn_loss(logits, p.log(), cost)
        same = sinkhorn_distance(p, q, cost)
    assert loss.dtype == torch.float32
    assert_close(loss, sinkhorn_loss(logits.float(), p.log(), cost), rtol=0, atol=0)
    assert_close(same, sinkhorn_distance(p, q, cost), rtol=0, atol=0)
    loss.backward()
    assert bool(layer.weight.grad.isfinite().all())


def test_divergence_is_zero_at_equality_and_positive_elsewhere():
    p, q, cost = problem(4, 6, 6, kind="shared")
    cost = (cost + cost.T) / 2
    options = {"epsilon": EPSILON, "tolerance": 1e-10}
    assert_close(
        sinkhorn_divergence(p, p, cost, **options), torch.zeros(4, dtype=torch.float64), atol=1e-9, rtol=0
    )
    assert bool((sinkhorn_divergence(p, q, cost, **options) > 1e-4).all())
    student = p.log().requires_grad_()
    sinkhorn_divergence(p, torch.softmax(student, 1), cost, **options).sum().backward()
    assert_close(student.grad, torch.zeros_like(student), atol=1e-7, rtol=0)


def test_divergence_between_different_classes():
    p, q, cost = problem(4, 7, 5)
    within_p, within_q = problem(1, 7, 7, kind="shared")[2], problem(1, 5, 5, kind="shared")[2]
    value = sinkhorn_divergence(p, q, cost, within_p, within_q, 0.2, 1e-10)
    parts = [
        sinkhorn(a, b, c, 0.2, 1e-10).value for a, b, c in ((p, q, cost), (p, p, within_p), (q, q, within_q))
    ]
    assert_close(value, parts[0] - parts[1] / 2 - parts[2] / 2)


def test_settings_reach_the_solver():
    p, q, cost = problem(4, 20, 20, kind="shared")
    with pytest.warns(SinkhornWarning):
        sinkhorn_distance(p, q, cost, 0.01, max_iterations=3)
    rough, fine = sinkhorn_distance(p, q, cost, 0.1, 1e-1), sinkhorn_distance(p, q, cost, 0.1, 1e-9)
    assert bool((rough < fine).all())  # the semi-dual value rises to the optimum
