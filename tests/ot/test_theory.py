import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from preceptor.ot import hilbert_metric, kappa
from tests.oracles.ot import log_domain, problem


def test_hilbert_metric_is_its_definition():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(6, generator=generator) + 0.1, torch.rand(6, generator=generator) + 0.1
    pairs = itertools.product(range(6), repeat=2)
    expected = math.log(max(float(x[i] * y[j] / (x[j] * y[i])) for i, j in pairs))
    assert_close(hilbert_metric(x, y), torch.tensor(expected))
    assert_close(hilbert_metric(x, 3 * x), torch.tensor(0.0), atol=1e-6, rtol=0)
    assert hilbert_metric(x.expand(2, 6), y.expand(2, 6)).shape == (2,)


def test_kappa_is_its_definition():
    kernel = torch.rand(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.05
    indices = itertools.product(range(4), range(4), range(5), range(5))
    psi = max(float(kernel[i, a] * kernel[j, b] / (kernel[j, a] * kernel[i, b])) for i, j, a, b in indices)
    expected = (math.sqrt(psi) - 1) / (math.sqrt(psi) + 1)
    assert_close(kappa(kernel), torch.tensor(expected, dtype=torch.float64))


def test_kappa_of_a_rank_one_kernel_is_zero():
    kernel = torch.outer(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([3.0, 0.1]))
    assert_close(kappa(kernel), torch.tensor(0.0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["disjoint", "shared"])
def test_measured_contraction_stays_under_kappa_squared(kind):
    # Prop. 4.3; the bound is only worth a test where it is well below 1.
    p, q, cost = problem(16, 8, 7, kind=kind)
    epsilon = 1.0
    bound = kappa(torch.exp(-cost / epsilon)) ** 2
    assert bound < 0.5
    _, exact = log_domain(p, q, cost, epsilon, 200)

    def distance(iterations: int) -> torch.Tensor:
        gap = log_domain(p, q, cost, epsilon, iterations)[1] - exact
        return gap.amax(dim=1) - gap.amin(dim=1)

    ratios = torch.stack([distance(t + 1) / distance(t) for t in range(1, 6)])
    assert bool((ratios <= bound).all())
    assert ratios.max() > 0.001 * bound  # it is contraction that was measured, not rounding


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="defined between positive vectors; a value of 0 or less came"):
        hilbert_metric(torch.ones(2), torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="defined between positive vectors"):
        hilbert_metric(torch.tensor([-1.0, 1.0]), torch.ones(2))
    with pytest.raises(ValueError, match=r"a kernel of shape \(3,\) came; \(m, n\) was expected"):
        kappa(torch.ones(3))
    with pytest.raises(ValueError, match="kappa is defined for positive kernels; a value of 0 or less came"):
        kappa(torch.tensor([[1.0, 0.0]]))
