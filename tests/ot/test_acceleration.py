"""Anderson's extrapolation: exact on linear maps, harmless where there is nothing to learn from."""

import torch
from torch.testing import assert_close

from preceptor.ot import scaling, sinkhorn
from preceptor.ot.acceleration import Anderson
from tests.oracles.ot import problem


def test_anderson_solves_a_linear_map_of_as_many_dimensions_as_it_remembers():
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    rates = torch.tensor([0.99, 0.9, 0.5, 0, 0, 0], dtype=torch.float64)
    matrix = basis @ torch.diag(rates) @ basis.T
    target = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    weight = torch.ones(2, 6, dtype=torch.float64)  # the norm of the symmetric map
    history, y = Anderson(weight), torch.zeros_like(target)
    for _ in range(5):
        image = target + (y - target) @ matrix
        history.remember(image, image - y)
        y = image
    assert_close(history.extrapolate(), target, atol=1e-5, rtol=0)


def test_anderson_takes_a_plain_step_without_history_and_where_nothing_moves():
    history = Anderson(torch.ones(2, 3) / 3)
    image, still = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), torch.zeros(2, 3)
    history.remember(image, still)
    assert_close(history.extrapolate(), image)
    history.remember(image, still)
    assert_close(history.extrapolate(), image)
    history.remember(image, torch.full((2, 3), torch.nan))
    assert_close(history.extrapolate(), image)


def test_acceleration_saves_most_iterations(monkeypatch):
    p, q, cost = problem(32, 50, 50, kind="shared")
    fast = sinkhorn(p, q, cost, 0.1).iterations
    monkeypatch.setattr(Anderson, "extrapolate", lambda self: self.last)
    half = sinkhorn(p, q, cost, 0.1).iterations
    assert 2 * fast < half
    monkeypatch.setattr(scaling, "BEYOND", (0.0,))
    slow = sinkhorn(p, q, cost, 0.1).iterations
    assert half + 4 <= slow
