"""The Anderson step of `acceleration` for Triton kernels: DEPTH 3, on log2 v, after every second iteration."""

from __future__ import annotations

import triton
import triton.language as tl

TINY = tl.constexpr(1e-37)  # of sums that vanish where pairs are forbidden or out of range
HIGHEST = tl.constexpr(58.0)  # bits: what v may grow to within the range of float32
LOWEST = tl.constexpr(-140.0)
RIDGE = tl.constexpr(1e-6)  # holds differences that repeat each other, and those that are not there yet
STEEPEST = tl.constexpr(1e4)  # coefficient of a step that cannot overflow


@triton.jit
def total(x):
    """The sum over the first three axes: registers, then lanes, then warps."""
    return tl.sum(tl.sum(tl.sum(x, axis=0), axis=1), axis=0)


@triton.jit
def image_of(q, received):
    """Eq. (20), second half: log2 of v = q ./ (K' u); 0 in the padding, where q is 0."""
    image = tl.log2(q) - tl.log2(tl.where(received < TINY, TINY, received))
    return tl.where(q > 0, tl.minimum(image, HIGHEST), 0.0)


@triton.jit
def leap(q, image, residual, new_image, last_image, last_residual, image_c, c, cc):
    """The next log2 v after a pair of iterations, and what the next pair needs to know of this one.

    Args:
        q: Masses; every tensor here has its three axes.
        image: Of the pair's first iteration.
        residual: Of the pair's first iteration, weighted by the root of q.
        new_image: Of the pair's second iteration.
        last_image: Of the second iteration of the pair before.
        last_residual: Likewise.
        image_c: How the images of the pair before differ.
        c: How its residuals differ.
        cc: The product of c with itself; 0 if there was no pair before.
    """
    # Differences a, b and c from new to old. Weighted by q the linearised map is symmetric.
    b, image_b = residual - last_residual, image - last_image
    image_a = new_image - image
    r = tl.sqrt(q) * image_a
    a = r - residual
    aa, ab, bb, ac, bc, ar, br, cr = _eight_sums(a * a, a * b, b * b, a * c, b * c, a * r, b * r, c * r)
    if cc == 0:
        ab, bb, bc, br = 0.0, 0.0, 0.0, 0.0
    by_a, by_b, by_c = _coefficients(aa, ab, ac, bb, bc, cc, ar, br, cr)
    z = new_image - by_a * image_a - by_b * image_b - by_c * image_c
    z -= total(q * z)  # a constant means nothing, but steps add up to one that leaves the range
    z = tl.where(q > 0, tl.minimum(tl.maximum(z, LOWEST), HIGHEST), 0.0)
    return z, new_image, r, image_a, a, aa


@triton.jit
def _eight_sums(a, b, c, d, e, f, g, h):
    """Eight sums in one exchange between the threads."""
    left = tl.join(tl.join(a, b), tl.join(c, d))
    right = tl.join(tl.join(e, f), tl.join(g, h))
    left, right = tl.split(total(tl.join(left, right)))
    ab, cd = tl.split(left)
    ef, gh = tl.split(right)
    a, b = tl.split(ab)
    c, d = tl.split(cd)
    e, f = tl.split(ef)
    g, h = tl.split(gh)
    return a, b, c, d, e, f, g, h


@triton.jit
def _coefficients(aa, ab, ac, bb, bc, cc, ar, br, cr):
    """The combination of a, b and c that best cancels the residual r, by elimination on their products."""
    ridge = RIDGE * (aa + bb + cc) + TINY
    aa += ridge
    ab_aa, ac_aa = ab / aa, ac / aa
    bb += ridge - ab_aa * ab
    bc -= ac_aa * ab
    bc_bb = bc / bb
    cc += ridge - ac_aa * ac - bc_bb * bc
    br -= ab_aa * ar
    by_c = (cr - ac_aa * ar - bc_bb * br) / cc
    by_b = br / bb - bc_bb * by_c
    by_a = ar / aa - ab_aa * by_b - ac_aa * by_c
    return _within(by_a), _within(by_b), _within(by_c)


@triton.jit
def _within(coefficient):
    """0, a plain step, in place of NaN and of steps that could overflow."""
    return tl.where(tl.abs(coefficient) < STEEPEST, coefficient, 0.0)
