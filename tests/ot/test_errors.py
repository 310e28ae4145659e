import math

import pytest
import torch

from preceptor.ot import SinkhornLoss, sinkhorn, sinkhorn_distance, sinkhorn_divergence, sinkhorn_loss

P = torch.full((2, 3), 1 / 3)
Q = torch.full((2, 4), 1 / 4)
COST = torch.ones(3, 4)


def changed(tensor, index, value):
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


@pytest.mark.parametrize(
    ("p", "q", "cost", "message"),
    [
        (
            P[0],
            Q,
            COST,
            r"^p \(3,\), q \(2, 4\) and cost \(3, 4\) came; p \(B, m\), q \(B, n\) and cost \(m, n\)",
        ),
        (P[:1], Q, COST, "^p has 1 rows and q has 2; both need one row for each problem$"),
        (P, Q, COST.T, r"^cost of shape \(4, 3\) came; \(3, 4\) was expected, .*; this is its transpose$"),
        (
            P,
            Q,
            torch.ones(3, 5),
            r"^cost of shape \(3, 5\) came; \(3, 4\) was expected, a row for each .* of q$",
        ),
        (
            P[:, :0],
            Q,
            COST[:0],
            r"^cost of shape \(0, 4\) came; at least one class on each side was expected$",
        ),
        (changed(P, (1, 0), math.nan), Q, COST, "^p has NaN in row 1; each row must be a distribution$"),
        (P, changed(Q, (0, 0), -0.1), COST, "^q has negative mass in row 0; each row"),
        (changed(P, (0, 0), math.inf), Q, COST, "^p has infinite mass in row 0"),
        (P, 2 * Q, COST, "^q sums to 2 in rows 0, 1; each row must sum to 1$"),
        (
            P.repeat(8, 1) / 2,
            Q.repeat(8, 1),
            COST,
            "^p sums to 0.5 in rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …; each",
        ),
        (
            P,
            Q,
            changed(COST, (1, 2), math.nan),
            r"^cost has NaN at \(1, 2\); numbers were expected, \+inf for a",
        ),
        (P, Q, changed(COST, (0, 3), -math.inf), r"^cost has -inf at \(0, 3\); numbers were expected"),
        (
            P,
            Q,
            COST * math.inf,
            r"^every cost is \+inf, so that nothing may be transported; at least one finite cost was",
        ),
        (P, Q.to("meta"), COST, "^p is on cpu, q on meta, cost on cpu; move them to one"),
    ],
)
def test_wrong_problems_say_what_came(p, q, cost, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(p, q, cost)


@pytest.mark.parametrize(
    ("p", "q", "cost", "message"),
    [
        ([[1.0]], Q, COST, "^p of type list came; a torch tensor was expected$"),
        (P, Q, COST.numpy(), "^cost of type ndarray came; a torch tensor"),
        (
            P.half(),
            Q.half(),
            COST,
            "^p of type torch.float16 came, float32 or float64 was .* before the softmax$",
        ),
        (P, Q.bfloat16(), COST, "^q of type torch.bfloat16 came"),
        (P.double(), Q, COST, "^p is torch.float64 and q is torch.float32; give both in one precision$"),
        (
            P,
            Q,
            COST.long(),
            r"^cost of type torch.int64 came, floating point was expected; call cost.float\(\)$",
        ),
    ],
)
def test_wrong_types_say_what_came(p, q, cost, message):
    with pytest.raises(TypeError, match=message):
        sinkhorn(p, q, cost)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "^epsilon=0.0 came; a finite number above 0 was expected$"),
        ({"epsilon": math.nan}, "^epsilon=nan came"),
        ({"epsilon": math.inf}, "^epsilon=inf came"),
        ({"tolerance": -1.0}, "^tolerance=-1.0 came; a finite number above 0"),
        ({"tolerance": math.inf}, "^tolerance=inf came"),
        ({"max_iterations": 0}, "^max_iterations=0 came; at least 1 was expected$"),
        (
            {"beta0": torch.zeros(2, 3)},
            r"^beta0 of shape \(2, 3\) came; the shape of q, \(2, 4\), was expected$",
        ),
        (
            {"beta0": torch.full((2, 4), math.inf)},
            "^beta0 has NaN or infinity; finite potentials were expected",
        ),
        (
            {"beta0": torch.zeros(2, 4, device="meta")},
            "^beta0 is on meta and q on cpu; move them to one device$",
        ),
    ],
)
def test_wrong_options_say_what_came(options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(P, Q, COST, **options)


def test_the_cost_is_a_constant():
    with pytest.raises(ValueError, match=r"a cost that requires a gradient came; .*pass cost.detach\(\)"):
        sinkhorn_distance(P, Q, COST.requires_grad_(True))
    COST.requires_grad_(False)


def test_the_divergence_needs_costs_within_each_side():
    with pytest.raises(
        ValueError, match=r"a cost of shape \(3, 4\) that is not symmetric came without cost_p"
    ):
        sinkhorn_divergence(P, Q, COST)
    lopsided = torch.tensor([[0.0, 1.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match="give both"):
        sinkhorn_divergence(P, P, lopsided, cost_p=lopsided)


def test_wrong_settings_of_the_loss():
    with pytest.raises(ValueError, match=r"^temperature=0 came; a finite number above 0 was expected$"):
        sinkhorn_loss(Q, P, COST, temperature=0)
    with pytest.raises(ValueError, match=r"^reduction='sum' came; 'mean' or 'none' was expected$"):
        sinkhorn_loss(Q, P, COST, reduction="sum")
    with pytest.raises(ValueError, match=r"^temperature=-1 came"):
        SinkhornLoss(COST, temperature=-1)(Q, P)


def test_every_function_says_what_the_solver_says():
    shapes = r"^p \(3,\), q \(4,\) and cost \(3, 4\) came; p \(B, m\), q \(B, n\) and cost \(m, n\)"
    with pytest.raises(ValueError, match=shapes):
        sinkhorn_distance(P[0], Q[0], COST)
    with pytest.raises(ValueError, match=shapes):
        sinkhorn_loss(Q[0], P[0], COST)
    with pytest.raises(ValueError, match=r"^p \(3,\), q \(3,\) and cost \(3, 3\) came"):
        sinkhorn_divergence(P[0], P[0], torch.eye(3))
    came = "of type ndarray came; a torch tensor was expected$"
    with pytest.raises(TypeError, match=f"^p {came}"):
        sinkhorn_distance(P.numpy(), Q, COST)
    with pytest.raises(TypeError, match=f"^q {came}"):
        sinkhorn_divergence(P, P.numpy(), torch.eye(3))
    with pytest.raises(TypeError, match=f"^cost {came}"):
        sinkhorn_divergence(P, P, torch.eye(3).numpy())
    with pytest.raises(TypeError, match=f"^student_logits {came}"):
        sinkhorn_loss(Q.numpy(), P, COST)
    with pytest.raises(TypeError, match=f"^cost {came}"):
        sinkhorn_loss(Q, P, COST.numpy())
    with pytest.raises(TypeError, match=f"^beta0 {came}"):
        sinkhorn(P, Q, COST, beta0=Q.numpy())


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"temperature": -1}, {"epsilon": math.inf}])
def test_the_module_refuses_settings_when_it_is_made(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"^{name}={value} came; a finite number above 0 was expected$"):
        SinkhornLoss(COST, **options)
    with pytest.raises(TypeError, match=r"^cost of type ndarray came"):
        SinkhornLoss(COST.numpy())


def test_an_empty_batch_is_no_error():
    result = sinkhorn(P[:0], Q[:0], COST)
    assert result.value.shape == (0,)
    assert result.plan().shape == (0, 3, 4)
    assert result.transport_cost.shape == (0,)
