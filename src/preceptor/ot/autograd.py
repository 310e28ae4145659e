"""The Sinkhorn distance as a differentiable function: the gradient is the dual potential, Eq. (14)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import fused
from .sinkhorn import sinkhorn
from .validation import check_form, check_options, check_tensors

_ONCE = (
    "sinkhorn_distance can be differentiated once: its gradient is the dual potential, whose own derivative "
    "is not implemented; leave out create_graph=True, or detach the gradient"
)


class _FirstOrderOnly(torch.autograd.Function):
    """upstream (B,) times potential (B, k), hung on the inputs so that a second derivative is an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(upstream: Tensor, potential: Tensor, p: Tensor, q: Tensor) -> Tensor:
        return upstream[:, None] * potential

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(_ONCE)


def _gradients(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    """Eq. (14): alpha for p, beta for q, each only where it is asked for."""
    p, q, alpha, beta = ctx.saved_tensors
    needs_p, needs_q = ctx.needs_input_grad[:2]
    if not torch.is_grad_enabled():  # no second derivative can follow
        grad_p = upstream[:, None] * alpha if needs_p else None
        grad_q = upstream[:, None] * beta if needs_q else None
    else:
        grad_p = _FirstOrderOnly.apply(upstream, alpha, p, q) if needs_p else None
        grad_q = _FirstOrderOnly.apply(upstream, beta, p, q) if needs_q else None
    return grad_p, grad_q, None, None, None, None


class _SinkhornDistance(torch.autograd.Function):
    """The value of Eq. (5); also gives alpha and beta, which are constants to automatic differentiation."""

    @staticmethod
    def forward(
        p: Tensor, q: Tensor, cost: Tensor, epsilon: float, tolerance: float, max_iterations: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        check_form(p, q, cost)
        if fused.takes(p, q):
            check_options(epsilon, tolerance, max_iterations)
            return fused.value_and_potentials(p, q, cost, epsilon, tolerance, max_iterations)
        result = sinkhorn(p, q, cost, epsilon, tolerance, max_iterations)
        return result.value, result.alpha, result.beta

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        p, q, *_ = inputs
        _, alpha, beta = output
        ctx.mark_non_differentiable(alpha, beta)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(p, q, alpha, beta)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: Any) -> Any:
        if upstream is None:
            return (None,) * 6
        return _gradients(ctx, upstream)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(
            "sinkhorn_distance has no forward-mode derivative; use reverse mode (backward, torch.func.grad or vjp)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], p: Tensor, q: Tensor, cost: Tensor, *options: Any) -> Any:
        if in_dims[2] is not None:
            raise ValueError(
                "sinkhorn_distance under vmap needs one cost for all problems; loop over the costs"
            )
        size = info.batch_size
        p, q = (
            side.movedim(dim, 0) if dim is not None else side.expand(size, *side.shape)
            for side, dim in ((p, in_dims[0]), (q, in_dims[1]))
        )
        flat = _SinkhornDistance.apply(p.flatten(0, 1), q.flatten(0, 1), cost, *options)
        return tuple(output.unflatten(0, (size, -1)) for output in flat), (0, 0, 0)


@torch.library.custom_op("preceptor::sinkhorn_distance", mutates_args=())
def _compiled_distance(
    p: Tensor, q: Tensor, cost: Tensor, epsilon: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for torch.compile: one opaque step in the graph, since the iterations depend on the data."""
    return _SinkhornDistance.forward(p, q, cost, epsilon, tolerance, max_iterations)


@_compiled_distance.register_fake
def _(p: Tensor, q: Tensor, cost: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return p.new_empty(p.shape[0]), torch.empty_like(p), torch.empty_like(q)


def _keep_potentials(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:2], *output[1:])


def _compiled_backward(ctx: Any, upstream: Tensor, *_: Any) -> Any:
    return _gradients(ctx, upstream)


_compiled_distance.register_autograd(_compiled_backward, setup_context=_keep_potentials)


def sinkhorn_distance(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    epsilon: float = 0.1,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
) -> Tensor:
    """The entropic transport value of Eq. (5) for each row, (B,), differentiable in p and q.

    The gradient comes from the envelope theorem, Eq. (14): it is the dual potential, up to a constant that a
    softmax removes. Nothing is recorded during the iterations. Arguments are those of `sinkhorn`; the cost is
    a constant, and second derivatives raise.

    On CUDA in float32 nobody looks at the inputs: NaN in gives NaN out. Up to 256 classes a side one fused launch
    does it all and the host never waits: a CUDA graph can record it, and problems short of the tolerance are not
    reported. With more classes the host looks at one number every few iterations.
    """
    if isinstance(cost, Tensor) and cost.requires_grad:
        raise ValueError("a cost that requires a gradient came; it is a constant here: pass cost.detach()")
    options = (float(epsilon), float(tolerance), int(max_iterations))
    if torch.compiler.is_compiling():
        return _compiled_distance(p, q, cost, *options)[0]
    value: Tensor = _SinkhornDistance.apply(p, q, cost, *options)[0]
    return value


def sinkhorn_divergence(
    p: Tensor,
    q: Tensor,
    cost: Tensor,
    cost_p: Tensor | None = None,
    cost_q: Tensor | None = None,
    epsilon: float = 0.1,
    tolerance: float = 1e-4,
    max_iterations: int = 1000,
) -> Tensor:
    """The debiased value S(p, q) - S(p, p) / 2 - S(q, q) / 2 for each row, (B,): zero where p equals q.

    Args:
        p: (B, m) distributions.
        q: (B, n) distributions.
        cost: (m, n) between the classes of p and those of q.
        cost_p: (m, m) among the classes of p. May be left out where both sides have the same classes in the
            same order, which a symmetric `cost` shows.
        cost_q: (n, n) among the classes of q, likewise.
        epsilon: as in `sinkhorn`.
        tolerance: as in `sinkhorn`.
        max_iterations: as in `sinkhorn`.
    """
    check_tensors(p=p, q=q, cost=cost)
    if cost_p is None or cost_q is None:
        if cost.ndim != 2 or cost.shape[0] != cost.shape[1] or not torch.equal(cost, cost.T):
            raise ValueError(
                f"the divergence needs the costs within each side; a cost of shape {tuple(cost.shape)} that "
                f"is not symmetric came without cost_p and cost_q: give both"
            )
    options = (epsilon, tolerance, max_iterations)
    within_p = sinkhorn_distance(p, p, cost if cost_p is None else cost_p, *options)
    within_q = sinkhorn_distance(q, q, cost if cost_q is None else cost_q, *options)
    return sinkhorn_distance(p, q, cost, *options) - (within_p + within_q) / 2
