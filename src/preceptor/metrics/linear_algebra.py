"""Products and Cholesky factors, each by the quicker of the two libraries at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs, solve_triangular
from torch import Tensor

from preceptor.metrics.inputs import Array


def one_thread() -> bool:
    """Whether numpy's and scipy's products may be used.

    On processors that torch's library was not written for they are a tenth to a fifth faster, and factors twice
    as fast. With several threads theirs and torch's get into each other's way, and take four times as long.
    """
    return torch.get_num_threads() == 1


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The matrix product, by the quicker library."""
    if not one_thread():
        return torch.mm(a, b, out=out)
    if out is None:
        return torch.from_numpy(a.numpy() @ b.numpy())
    np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    return out


@dataclass(frozen=True)
class Cholesky:
    """L of a symmetric positive definite matrix L L^T."""

    lower: Array  # (d, d), column by column as LAPACK wants it; what lies above the diagonal is not L's

    @classmethod
    def of(cls, matrix: Array) -> Cholesky:
        """From a symmetric matrix, in its precision; `LinAlgError` where it is not positive definite."""
        if one_thread():
            factorize = get_lapack_funcs("potrf", (matrix,))
            lower, failure = factorize(matrix.T, lower=True, clean=False)  # its own transpose, read in place
        else:
            factor, info = torch.linalg.cholesky_ex(torch.from_numpy(matrix))
            lower, failure = np.asfortranarray(factor.numpy()), int(info)
        if failure:
            raise np.linalg.LinAlgError(f"the leading minor of order {failure} is not positive")
        return cls(lower)

    def solve(self, right: Array) -> Array:
        """(L L^T)^-1 right."""
        if one_thread():
            solve = get_blas_funcs("trsm", (self.lower,))
            # The transpose, from the right: nothing has to be laid out anew, which takes a quarter of the time.
            turned = np.array(right, dtype=self.lower.dtype, order="C").T
            turned = solve(1, self.lower, turned, side=1, lower=1, trans_a=1, overwrite_b=1)
            return solve(1, self.lower, turned, side=1, lower=1, overwrite_b=1).T
        return torch.cholesky_solve(torch.from_numpy(right), torch.from_numpy(self.lower)).numpy()

    def half_solve(self, right: Array) -> Array:
        """L^-1 right."""
        if one_thread():
            return solve_triangular(self.lower, right, lower=True, check_finite=False)
        factor = torch.from_numpy(self.lower)
        return torch.linalg.solve_triangular(factor, torch.from_numpy(right), upper=False).numpy()

    def half_log_determinant(self) -> float:
        """Half the logarithm of the matrix's determinant."""
        return float(np.log(self.lower.diagonal()).sum())
