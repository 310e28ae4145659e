"""Anderson acceleration of the potentials: a step that combines the last few iterates of each problem."""

from __future__ import annotations

import torch
from torch import Tensor

DEPTH = 3  # differences remembered; deeper ones are stale before they help, the map is far from linear


class Anderson:
    """The last differences of a fixed-point map g(y) = y + f(y), for each of B problems.

    The map here is one iteration of Eq. (20) on y = log v. Residuals are measured in the norm weighted by q:
    in it the linearised map is symmetric, and classes without mass do not count.
    """

    def __init__(self, q: Tensor):
        size, classes = q.shape
        self.weight = q.sqrt()  # (B, n)
        self.residuals = q.new_zeros(size, DEPTH + 1, classes)  # weighted differences of f, and f itself
        self.images = [torch.zeros_like(q) for _ in range(DEPTH)]  # differences of g
        self.last: Tensor | None = None  # the last g
        self.slot = 0

    def remember(self, image: Tensor, residual: Tensor) -> None:
        """Take in g(y) and f(y) at the current y, both (B, n); g has to stay as it is until the next call."""
        last = self.residuals[:, DEPTH]
        residual.mul_(self.weight)
        if self.last is not None:
            torch.sub(residual, last, out=self.residuals[:, self.slot])
            torch.sub(image, self.last, out=self.images[self.slot])
            self.slot = (self.slot + 1) % DEPTH
        last.copy_(residual)
        self.last = image

    def extrapolate(self) -> Tensor:
        """The next y, (B, n): g less the combination of differences that best cancels f."""
        assert self.last is not None
        products = torch.bmm(self.residuals, self.residuals.transpose(1, 2))  # (B, DEPTH + 1, DEPTH + 1)
        gram, right = products[:, :DEPTH, :DEPTH], products[:, :DEPTH, DEPTH:]
        # Slots still empty, and differences that repeat each other, are held by a ridge of rounding size.
        info = torch.finfo(gram.dtype)
        diagonal = gram.diagonal(dim1=1, dim2=2)
        ridge = diagonal.sum(dim=1, keepdim=True) * (8 * info.eps) + info.tiny
        diagonal.add_(ridge)
        coefficients = torch.linalg.solve_ex(gram, right).result  # (B, DEPTH, 1)
        # A plain step where the system cannot be solved; no step that could overflow.
        coefficients.nan_to_num_(0, 0, 0).clamp_(-1e4, 1e4)
        step = self.last.clone()
        for difference, coefficient in zip(self.images, coefficients.unbind(dim=1), strict=True):
            step.addcmul_(difference, coefficient, value=-1)
        return step

    def keep(self, rows: Tensor) -> None:
        """Forget all problems but those in `rows`."""
        self.weight = self.weight.index_select(0, rows)
        self.residuals = self.residuals.index_select(0, rows)
        self.images = [difference.index_select(0, rows) for difference in self.images]
        if self.last is not None:
            self.last = self.last.index_select(0, rows)
