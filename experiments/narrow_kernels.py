"""Triton kernels for convolutions in many narrow groups; `narrow` makes torch operators of them.

With 16 to 128 channels a group, a convolution is bound by memory. Where a group has a stride, or other numbers of
channels in and out, cuDNN goes through the groups one by one: on an H200 that takes two to twenty times as long as
this does. (Where it has kernels for groups, these take two thirds of the time.) A program here takes a block of pixels
and a few neighbouring groups, so that it reads longer pieces of a channels-last tensor. The groups it takes are
multiplied as one matrix with zeros beside its diagonal blocks: the tensor cores have time to spare. Products are summed
in float32.

One kernel gathers: the output from the inputs, or the gradient of the inputs from that of the output. Another sums
the gradient of the weights over chunks of pixels, in an order that depends on sizes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Form:
    """How a kernel is laid out. The last three are for the gradient of the weights."""

    pack: int  # groups that a program takes side by side
    pixels: int  # in a block
    warps: int
    registers: int | None = None  # of a thread, at most: with fewer, more programs share a multiprocessor
    stages: int = 1  # blocks read ahead, where a program takes several
    lines: int = 3  # of the kernel's taps that a program sums; the rest is left to other programs
    whole: bool = True  # lines, or one tap of each
    programs: int = 4  # that share the pixels, for each multiprocessor: as many as fit one, or a multiple

    def options(self) -> dict[str, int | None]:
        """As Triton names them."""
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


# By the channels of a group, in or out, whichever are more; a pair (in, out) goes first. No form spills registers in
# bfloat16. The quickest of several on an H200 for strides of 2.
GATHER: dict[int | tuple[int, int], Form] = {
    16: Form(pack=2, pixels=128, warps=4, registers=80),
    32: Form(pack=1, pixels=128, warps=4),
    64: Form(pack=1, pixels=128, warps=4),
    128: Form(pack=1, pixels=128, warps=8),
}
WEIGHT: dict[int | tuple[int, int], Form] = {
    16: Form(pack=1, pixels=64, warps=4, stages=2, programs=8),
    32: Form(pack=1, pixels=128, warps=4, programs=6),
    64: Form(pack=1, pixels=64, warps=8, lines=1, programs=6),
    128: Form(pack=1, pixels=128, warps=8, lines=1, whole=False, programs=4),
}
MULTIPROCESSORS = 132  # of an H200; a constant, so that sums have the same order everywhere
LEAST_BLOCKS = 4  # that a program sums


@triton.jit
def _places(block, PIXELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers of a block's pixels in the batch, and their image, row and column."""
    pixel = block * PIXELS + tl.arange(0, PIXELS)
    inside = pixel % (HEIGHT * WIDTH)
    return pixel, pixel // (HEIGHT * WIDTH), inside // WIDTH, inside % WIDTH


@triton.jit
def _gather_kernel(  # type: ignore[no-untyped-def]
    source_ptr, weight_ptr, result_ptr,  # (B, h, w, S FROM), (S, k, k, in, out), (B, h', w', S TO)
    pixels,  # B h' w'
    GROUPS: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, BACKWARD: tl.constexpr,
    PACK: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    # Programs for the same pixels are neighbours, so that their shares of a cache line are read at the same time.
    packs: tl.constexpr = (GROUPS + PACK - 1) // PACK
    first = tl.program_id(0) % packs * PACK
    pixel, image, row, column = _places(tl.program_id(0) // packs, PIXELS, ROWS, COLUMNS)
    i = tl.arange(0, PACK * FROM)
    j = tl.arange(0, PACK * TO)
    # Where the pixels' tap (0, 0) lies. Backward, tap k saw the pixels of remainder k by the stride.
    if BACKWARD:
        y, x = (row + PADDING) // STRIDE, (column + PADDING) // STRIDE
        y_rest, x_rest = (row + PADDING) % STRIDE, (column + PADDING) % STRIDE
    else:
        y, x = row * STRIDE - PADDING, column * STRIDE - PADDING
    channel = first * FROM + i
    sources = source_ptr + (((image * HEIGHT + y) * WIDTH + x) * (GROUPS * FROM))[:, None] + channel[None, :]
    # The weights of a tap: one block for each group, zeros beside the diagonal.
    if BACKWARD:
        entry = (i % FROM)[:, None] + (j % TO)[None, :] * FROM
    else:
        entry = (i % FROM)[:, None] * TO + (j % TO)[None, :]
    entry += (first + i // FROM)[:, None] * (KERNEL * KERNEL * FROM * TO)
    diagonal = ((i // FROM)[:, None] == (j // TO)[None, :]) & (first + i // FROM < GROUPS)[:, None]

    total = tl.zeros([PIXELS, PACK * TO], dtype=tl.float32)
    for tap in tl.static_range(KERNEL * KERNEL):
        valid = pixel < pixels
        if BACKWARD:
            down, right = -(tap // KERNEL // STRIDE), -(tap % KERNEL // STRIDE)
            if STRIDE > 1:
                valid &= (y_rest == tap // KERNEL % STRIDE) & (x_rest == tap % KERNEL % STRIDE)
        else:
            down, right = tap // KERNEL, tap % KERNEL
        valid &= (y + down >= 0) & (y + down < HEIGHT) & (x + right >= 0) & (x + right < WIDTH)
        mask = valid[:, None] & (channel < GROUPS * FROM)[None, :]
        seen = tl.load(sources + (down * WIDTH + right) * (GROUPS * FROM), mask=mask, other=0.0)
        weight = tl.load(weight_ptr + entry + tap * (FROM * TO), mask=diagonal, other=0.0)
        total = tl.dot(seen, weight, total, input_precision="tf32x3")

    channel = first * TO + j
    mask = (pixel < pixels)[:, None] & (channel < GROUPS * TO)[None, :]
    place = (pixel * (GROUPS * TO))[:, None] + channel[None, :]
    tl.store(result_ptr + place, total.to(result_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _weight_kernel(  # type: ignore[no-untyped-def]
    source_ptr, grad_ptr, result_ptr,  # (B, h, w, S FROM), (B, h', w', S TO), (chunks, S, k, k, FROM, TO)
    pixels,  # B h' w'
    GROUPS: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    PACK: tl.constexpr, PIXELS: tl.constexpr, LINES: tl.constexpr, BESIDE: tl.constexpr,
    BLOCKS: tl.constexpr,  # of pixels, of a chunk
):  # fmt: skip
    packs: tl.constexpr = (GROUPS + PACK - 1) // PACK
    turns: tl.constexpr = KERNEL if BESIDE == 1 else 1
    splits: tl.constexpr = KERNEL // LINES * turns
    first = tl.program_id(0) % packs * PACK
    part = tl.program_id(0) // packs % splits
    chunk = tl.program_id(0) // (packs * splits)
    line = part // turns * LINES
    # Taps of one line of the kernel lie side by side; the last of four is empty.
    i = tl.arange(0, BESIDE * PACK * FROM)
    j = tl.arange(0, PACK * TO)
    tap = part % turns + i // (PACK * FROM)
    channel = first * FROM + i % (PACK * FROM)
    used = (tap < KERNEL) & (channel < GROUPS * FROM)
    grad_channel = first * TO + j

    totals = ()  # Triton's tuples can be added; it does not unpack them
    for _ in tl.static_range(LINES):
        totals = totals + (tl.zeros([BESIDE * PACK * FROM, PACK * TO], dtype=tl.float32),)  # noqa: RUF005
    for block in range(BLOCKS):
        pixel, image, row, column = _places(chunk * BLOCKS + block, PIXELS, ROWS, COLUMNS)
        mask = (pixel < pixels)[:, None] & (grad_channel < GROUPS * TO)[None, :]
        place = (pixel * (GROUPS * TO))[:, None] + grad_channel[None, :]
        grad = tl.load(grad_ptr + place, mask=mask, other=0.0)
        y = row * STRIDE - PADDING + line
        x = (column * STRIDE - PADDING)[:, None] + tap[None, :]
        beside = (pixel < pixels)[:, None] & used[None, :] & (x >= 0) & (x < WIDTH)
        start = (image * HEIGHT + y) * WIDTH
        sources = source_ptr + (start[:, None] + x) * (GROUPS * FROM) + channel[None, :]
        sums = ()
        for down in tl.static_range(LINES):
            mask = beside & ((y + down >= 0) & (y + down < HEIGHT))[:, None]
            seen = tl.load(sources + down * (WIDTH * GROUPS * FROM), mask=mask, other=0.0)
            total = tl.dot(tl.trans(seen), grad, totals[down], input_precision="tf32x3")
            sums = sums + (total,)  # noqa: RUF005
        totals = sums

    # Beside the diagonal blocks lie products of different groups: nobody wants them.
    group = channel // FROM
    wanted = used[:, None] & (group[:, None] == (first + j // TO)[None, :])
    entry = (((chunk * GROUPS + group) * KERNEL + line) * KERNEL + tap) * FROM + i % FROM
    entries = result_ptr + entry[:, None] * TO + (j % TO)[None, :]
    for down in tl.static_range(LINES):
        tl.store(entries + down * (KERNEL * FROM * TO), totals[down], mask=wanted)


def channels_last(tensor: Tensor) -> Tensor:
    """Itself where it is."""
    return tensor.contiguous(memory_format=torch.channels_last)


def _form(table: dict[int | tuple[int, int], Form], before: int, after: int) -> Form:
    return table.get((before, after)) or table[max(before, after)]


def gather(
    source: Tensor, packed: Tensor, result: Tensor, stride: int, padding: int, backward: bool
) -> Tensor:
    """Fill the result: (B, S o, h', w') from the inputs, or backward (B, S i, h, w) from the output's gradient.

    Args:
        source: The inputs, or the gradient of the output.
        packed: (S, k, k, i, o) weights of the same type.
        result: Channels-last.
        stride: Of the convolution, forward and backward.
        padding: Likewise.
        backward: Which of the two.
    """
    groups, kernel, channels = len(packed), packed.shape[1], packed.shape[3:]
    form = _form(GATHER, *channels)
    (height, width), (rows, columns) = source.shape[2:], result.shape[2:]
    pixels = len(result) * rows * columns
    if pixels > 0:
        _gather_kernel[(triton.cdiv(pixels, form.pixels) * triton.cdiv(groups, form.pack),)](
            channels_last(source), packed, result, pixels,
            GROUPS=groups, FROM=channels[backward], TO=channels[not backward],
            HEIGHT=height, WIDTH=width, ROWS=rows, COLUMNS=columns,
            KERNEL=kernel, STRIDE=stride, PADDING=padding, BACKWARD=backward,
            PACK=form.pack, PIXELS=form.pixels, **form.options(),
        )  # fmt: skip
    return result


def weight_sums(inputs: Tensor, grad: Tensor, groups: int, kernel: int, stride: int, padding: int) -> Tensor:
    """The gradient of the weights from (B, S i, h, w) and (B, S o, h', w'): (S, k, k, i, o) float32."""
    before, after = inputs.shape[1] // groups, grad.shape[1] // groups
    form = _form(WEIGHT, before, after)
    (height, width), (rows, columns) = inputs.shape[2:], grad.shape[2:]
    pixels = len(grad) * rows * columns
    lines, beside = min(form.lines, kernel), triton.next_power_of_2(kernel) if form.whole else 1
    splits = kernel // lines * (1 if form.whole else kernel)
    programs = triton.cdiv(groups, form.pack) * splits  # a chunk
    blocks = triton.cdiv(pixels, form.pixels)
    shares = max(1, form.programs * MULTIPROCESSORS // programs)
    blocks_each = max(LEAST_BLOCKS, triton.cdiv(blocks, shares))
    chunks = triton.cdiv(blocks, blocks_each)
    sums = inputs.new_empty((chunks, groups, kernel, kernel, before, after), dtype=torch.float32)
    if chunks > 0:
        _weight_kernel[(programs * chunks,)](
            channels_last(inputs), channels_last(grad), sums, pixels,
            GROUPS=groups, FROM=before, TO=after, HEIGHT=height, WIDTH=width, ROWS=rows, COLUMNS=columns,
            KERNEL=kernel, STRIDE=stride, PADDING=padding, BLOCKS=blocks_each,
            PACK=form.pack, PIXELS=form.pixels, LINES=lines, BESIDE=beside, **form.options(),
        )  # fmt: skip
    return sums.sum(0)
