import numpy as np
import pytest
import torch

from preceptor.metrics.linear_algebra import Cholesky, product


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def matrix():
    rows = np.random.default_rng(0).standard_normal((40, 12))
    return rows.T @ rows


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_a_factor_solves_and_measures(matrix, threads, dtype, rtol):
    before = matrix.copy()
    factor = Cholesky.of(matrix.astype(dtype))
    right = np.random.default_rng(1).standard_normal((12, 5)).astype(dtype)
    for side in (right, np.asfortranarray(right), right[:, ::2]):
        kept = side.copy()
        np.testing.assert_allclose(factor.solve(side), np.linalg.solve(matrix, side), rtol=rtol)
        half = factor.half_solve(side)
        np.testing.assert_allclose((half**2).sum(), (side * np.linalg.solve(matrix, side)).sum(), rtol=rtol)
        assert factor.solve(side).dtype == half.dtype == dtype
        np.testing.assert_array_equal(side, kept)
    np.testing.assert_allclose(factor.half_log_determinant(), np.linalg.slogdet(matrix)[1] / 2, rtol=rtol)
    np.testing.assert_array_equal(matrix, before)


def test_a_matrix_that_is_not_positive_has_no_factor(matrix, threads):
    matrix[3, 3] = -1
    with pytest.raises(np.linalg.LinAlgError, match="leading minor of order 4 is not positive"):
        Cholesky.of(matrix)


def test_products(threads):
    a, b = torch.randn(5, 4), torch.randn(4, 3)
    out = torch.empty(5, 3)
    torch.testing.assert_close(product(a, b), a @ b)
    assert product(a, b, out=out) is out
    torch.testing.assert_close(out, a @ b)
