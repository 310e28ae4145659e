"""What the solver accepts. Errors say what came, what was expected and what to do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MASS_TOLERANCE = 1e-3  # how far a row's sum may be from 1


def check_problem(p: Tensor, q: Tensor, cost: Tensor) -> None:
    """Raise unless p (B, m) and q (B, n) are distributions and cost (m, n) fits them."""
    check_form(p, q, cost)
    if p.shape[0] and not bool(_is_distribution(p) & _is_distribution(q) & _is_cost(cost)):
        _explain_distribution(p, "p")
        _explain_distribution(q, "q")
        _explain_cost(cost)


def check_form(p: Tensor, q: Tensor, cost: Tensor) -> None:
    """Raise unless types, devices and shapes fit; looks at no number, so the host need not wait for the device."""
    _check_types(p, q, cost)
    _check_shapes(p, q, cost)


def check_options(epsilon: float, tolerance: float, max_iterations: int) -> None:
    """Raise unless the solver's settings make sense."""
    check_positive(epsilon=epsilon, tolerance=tolerance)
    if max_iterations < 1:
        raise ValueError(f"max_iterations={max_iterations} came; at least 1 was expected")


def check_start(beta0: Tensor, q: Tensor) -> None:
    """Raise unless beta0 can start the iteration for q (B, n)."""
    check_tensors(beta0=beta0)
    if beta0.shape != q.shape:
        raise ValueError(
            f"beta0 of shape {tuple(beta0.shape)} came; the shape of q, {tuple(q.shape)}, was expected"
        )
    if beta0.device != q.device:
        raise ValueError(f"beta0 is on {beta0.device} and q on {q.device}; move them to one device")
    if not bool(torch.isfinite(beta0).all()):
        raise ValueError(
            "beta0 has NaN or infinity; finite potentials were expected (or None for a cold start)"
        )


def check_tensors(**named: object) -> None:
    """Raise unless all of these are tensors."""
    for name, given in named.items():
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} of type {type(given).__name__} came; a torch tensor was expected")


def check_finite(**named: Tensor) -> None:
    """Raise unless all rows of these have finite numbers only."""
    for name, values in named.items():
        finite = torch.isfinite(torch.atleast_1d(values))
        if not bool(finite.all()):
            row = int(torch.nonzero(~finite)[0, 0])
            raise ValueError(f"{name} has NaN or infinity in row {row}; finite values were expected")


def check_positive(**named: float) -> None:
    """Raise unless all of these settings are finite and above 0."""
    for name, value in named.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value} came; a finite number above 0 was expected")


def _check_types(p: Tensor, q: Tensor, cost: Tensor) -> None:
    check_tensors(p=p, q=q, cost=cost)
    for name, tensor in (("p", p), ("q", q)):
        if tensor.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} of type {tensor.dtype} came, float32 or float64 was expected; half precision cannot "
                f"hold a distribution to the tolerance, so call .float() before the softmax"
            )
    if p.dtype != q.dtype:
        raise TypeError(f"p is {p.dtype} and q is {q.dtype}; give both in one precision")
    if not cost.dtype.is_floating_point:
        raise TypeError(f"cost of type {cost.dtype} came, floating point was expected; call cost.float()")
    if len({p.device, q.device, cost.device}) > 1:
        raise ValueError(
            f"p is on {p.device}, q on {q.device}, cost on {cost.device}; move them to one device"
        )


def _check_shapes(p: Tensor, q: Tensor, cost: Tensor) -> None:
    if p.ndim != 2 or q.ndim != 2 or cost.ndim != 2:
        raise ValueError(
            f"p {tuple(p.shape)}, q {tuple(q.shape)} and cost {tuple(cost.shape)} came; "
            f"p (B, m), q (B, n) and cost (m, n) were expected"
        )
    if p.shape[0] != q.shape[0]:
        raise ValueError(
            f"p has {p.shape[0]} rows and q has {q.shape[0]}; both need one row for each problem"
        )
    if cost.shape != (p.shape[1], q.shape[1]):
        hint = "; this is its transpose" if cost.shape == (q.shape[1], p.shape[1]) else ""
        raise ValueError(
            f"cost of shape {tuple(cost.shape)} came; ({p.shape[1]}, {q.shape[1]}) was expected, "
            f"a row for each column of p and a column for each column of q{hint}"
        )
    if 0 in cost.shape:
        raise ValueError(
            f"cost of shape {tuple(cost.shape)} came; at least one class on each side was expected"
        )


def _is_distribution(p: Tensor) -> Tensor:
    # NaN fails both comparisons, infinity the second.
    return (p.amin() >= 0) & ((p.sum(dim=1) - 1).abs().amax() <= MASS_TOLERANCE)


def _is_cost(cost: Tensor) -> Tensor:
    smallest = cost.amin()
    return (smallest > -math.inf) & (smallest < math.inf)


def _explain_distribution(p: Tensor, name: str) -> None:
    sums = p.sum(dim=1)
    for bad, what in (
        (torch.isnan(p).any(dim=1), "NaN"),
        ((p < 0).any(dim=1), "negative mass"),
        (torch.isinf(p).any(dim=1), "infinite mass"),
    ):
        if bool(bad.any()):
            rows = torch.nonzero(bad).flatten().tolist()
            raise ValueError(f"{name} has {what} in {_rows(rows)}; each row must be a distribution")
    bad = (sums - 1).abs() > MASS_TOLERANCE
    if bool(bad.any()):
        rows = torch.nonzero(bad).flatten().tolist()
        raise ValueError(
            f"{name} sums to {float(sums[rows[0]]):.6g} in {_rows(rows)}; each row must sum to 1"
        )


def _explain_cost(cost: Tensor) -> None:
    if bool(torch.isnan(cost).any()):
        i, j = torch.nonzero(torch.isnan(cost))[0].tolist()
        raise ValueError(f"cost has NaN at ({i}, {j}); numbers were expected, +inf for a forbidden pair")
    if bool((cost == -math.inf).any()):
        i, j = torch.nonzero(cost == -math.inf)[0].tolist()
        raise ValueError(f"cost has -inf at ({i}, {j}); numbers were expected, +inf for a forbidden pair")
    raise ValueError(
        "every cost is +inf, so that nothing may be transported; at least one finite cost was expected"
    )


def _rows(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:10])) + (" …" if len(rows) > 10 else "")
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}"
