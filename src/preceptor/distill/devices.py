"""Devices and processes through Lightning Fabric: one process by default, several under torchrun."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.data.subsets import check_seed
from preceptor.devices import resolve_device
from preceptor.files import explain
from preceptor.models import SEEDS

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def make_fabric(device: str, precision: Any) -> Fabric:
    """A launched Fabric: on the processes that torchrun started, or on this one."""
    # Imported here: it takes seconds, and most of what looks at devices trains nothing.
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError:  # the same library inside the `lightning` package
        from lightning.fabric import Fabric  # type: ignore[assignment]

    chosen = resolve_device(device)
    accelerator = {"cuda": "cuda", "mps": "mps"}.get(chosen.type, "cpu")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
        fabric = Fabric(
            accelerator=accelerator,
            devices=local,
            num_nodes=processes // local,
            strategy="ddp",
            precision=precision,
        )
    else:
        devices: Any = [chosen.index] if chosen.index is not None else 1
        fabric = Fabric(accelerator=accelerator, devices=devices, precision=precision)
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.WARNING)  # its banner is no news to anyone who typed torchrun
    fabric.launch()
    logger.setLevel(level)
    _PROCESSES.busy = True
    return fabric


class _Processes:
    """Whether a training is under way; one that failed leaves its process without waiting for the others."""

    busy = False
    leaving = False


_PROCESSES = _Processes()


def rest(fabric: Fabric) -> None:
    """A training has ended well in this process: leave the group in step with the others when Python ends.

    Without this, gloo's threads now and then abort a process whose peers are gone already.
    """
    _PROCESSES.busy = False
    if fabric.world_size > 1 and not _PROCESSES.leaving:
        _PROCESSES.leaving = True
        atexit.register(_leave)


def _leave() -> None:
    if not _PROCESSES.busy and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def resolve_precision(precision: str, device: str) -> str:
    """What "auto" means on the device: bfloat16 where it is fast, full precision elsewhere."""
    if precision != "auto":
        return precision
    return "bf16-mixed" if resolve_device(device).type == "cuda" else "32-true"


def on_first_process(fabric: Fabric, action: Callable[[], Any]) -> Any:
    """Run `action` in the first process and give its value, or its complaint, to all of them."""
    if fabric.world_size == 1:
        return action()
    value, complaint = None, None
    if fabric.is_global_zero:
        try:
            value = action()
        except PreceptorError as error:
            complaint = str(error)
        except OSError as error:
            complaint = explain(error)
    value, complaint = fabric.broadcast((value, complaint), src=0)
    if complaint is not None:
        raise PreceptorError(complaint)
    return value


def sum_over_processes(fabric: Fabric, values: Tensor) -> Tensor:
    """The sum of `values` over all processes."""
    if fabric.world_size > 1:
        values = values.clone()
        torch.distributed.all_reduce(values)
    return values


def sum_gradients(fabric: Fabric, parameters: list[torch.nn.Parameter]) -> None:
    """Sum the gradients over all processes in one message.

    The losses are shares of the global batch's, so their gradients add up. One flat message instead of
    DistributedDataParallel's buckets: parameters that a step leaves out need no search, parts of an
    accumulated batch need no switch, and these networks are small.
    """
    if fabric.world_size == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view(gradient.shape))


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Set torch's generators from (seed, step, rank), so that dropout goes on the same after a resumption."""
    set_generators(hash_seed(seed, step, rank), device)


def set_generators(value: int, device: torch.device) -> None:
    """Set torch's generators on the CPU and on this device; those of other devices are the caller's."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(value)


def plain_seed(seed: int) -> int:
    """The seed as a plain number, once it is one that every generator takes."""
    check_seed(seed)
    if seed >= SEEDS:
        raise PreceptorError(f"seed {seed} came; expected a whole number below 2**63")
    return int(seed)


def hash_seed(*numbers: int) -> int:
    """One well-mixed 63-bit seed out of several small numbers."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = (value ^ (number + 0x632BE59BD9B4E019)) * 0xBF58476D1CE4E5B9 % 2**64
        value ^= value >> 31
    return value >> 1
