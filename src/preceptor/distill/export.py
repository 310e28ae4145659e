"""A run as an ONNX file, through torch.export, checked against the torch model in onnxruntime."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.defaults import own_defaults
from preceptor.distill.saved_run import SavedRun, load_run
from preceptor.files import check_can_write, local_path, write_atomically
from preceptor.zoo import Preprocessing
from preceptor.zoo.card import ONNX_METADATA_KEY

OPSET = 18
SUFFIX = ".onnx"
_TOLERANCE = 1e-4  # of the largest logit


@dataclass(frozen=True)
class Export:
    """What was written and how well it agrees with the torch model."""

    path: Path
    opset: int
    largest_difference: float  # between logits, in units of the largest one
    input_shape: tuple[int, ...]  # without the batch

    @property
    def takes(self) -> str:
        """What goes into the graph, in words."""
        shape = f"(B, {', '.join(map(str, self.input_shape))})"
        return f"images {shape} in [0, 1]" if len(self.input_shape) == 3 else f"raw vectors {shape}"


class _Deployed(nn.Module):
    """Normalisation and network in one, so that nobody has to remember mean and deviation."""

    def __init__(self, saved: SavedRun) -> None:
        super().__init__()
        self.normalise, self.network = saved.normalise, saved.network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.normalise(images))


@own_defaults()
def export(
    run: str | os.PathLike[str] | SavedRun, file: str | os.PathLike[str], *, opset: int = OPSET
) -> Export:
    """Write a run's network as ONNX.

    The graph takes ``images``: float (B, C, H, W) in [0, 1] with any B (or raw vectors (B, d)); the
    normalisation is inside. It gives ``logits`` (B, classes). Class names are in the metadata under
    ``classes``, as JSON; and with the size of the images under ``preceptor``, where `Zoo.add` reads them.

    Args:
        run: A run folder, or what `load_run` gave.
        file: Where to write; the name ends in ``.onnx``.
        opset: The ONNX operator set.

    Raises:
        PreceptorError: The name has another ending, onnx is not installed, or the file does not compute what the
            torch model computes.
    """
    target = local_path(file)
    if target.suffix.lower() != SUFFIX:
        raise PreceptorError(
            f"{target.name} came and what is written is ONNX; name a file that ends in {SUFFIX} (the weights for torch "
            "are in the run folder: model.safetensors)"
        )
    if not target.parent.is_dir():
        raise PreceptorError(f"{target.parent} is no folder; make it first or write elsewhere")
    check_can_write(target)
    saved = run if isinstance(run, SavedRun) else load_run(run)
    network = _Deployed(saved).eval()
    generator = torch.Generator().manual_seed(0)
    data = _onnx_bytes(network, _inputs(saved, 4, generator), saved, opset)
    difference = _difference(data, network, _inputs(saved, 3, generator))
    if not difference <= _TOLERANCE:
        raise PreceptorError(
            f"the exported graph differs from the torch model by {difference:.1e} of the largest logit, "
            f"more than {_TOLERANCE:.0e}; nothing was written: try another opset than {opset}"
        )
    write_atomically(target, data)
    return Export(target, opset, difference, saved.spec.shape)


def _inputs(saved: SavedRun, count: int, generator: torch.Generator) -> Tensor:
    """Random images in [0, 1], or vectors with the mean and deviation of those that the network was trained on."""
    shape = (count, *saved.spec.shape)
    if len(saved.spec.shape) == 3:
        return torch.rand(shape, generator=generator)
    return saved.normalise.mean + saved.normalise.std * torch.randn(shape, generator=generator)


def _onnx_bytes(network: nn.Module, images: Tensor, saved: SavedRun, opset: int) -> bytes:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ModuleNotFoundError as error:
        raise PreceptorError(f"export needs {error.name}; install preceptor[onnx]") from None
    exported = _quietly(network, images, opset)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        exported.save(str(path), external_data=False)
        model = onnx.load(path)
    found = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if found != opset:  # torch's exporter leaves the graph as it was where it cannot convert
        raise PreceptorError(
            f"opset {opset} cannot be written for this network, only {found}; pass opset={found} (--opset {found})"
        )
    seen = Preprocessing.for_size(saved.spec.shape)  # no mean and deviation: the graph normalises
    teacher = {"classes": saved.classes, "preprocessing": seen.model_dump(mode="json")}
    for key, value in {
        "classes": json.dumps(saved.classes),
        ONNX_METADATA_KEY: json.dumps(teacher),
        "producer": "preceptor",
        **({"range": "[0, 1]"} if len(saved.spec.shape) == 3 else {}),
    }.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _quietly(network: nn.Module, images: Tensor, opset: int) -> Any:
    """Run torch's exporter without its progress marks, its warnings about itself and failures that it survives."""
    levels = {"torch.onnx": logging.ERROR, "onnxscript": logging.CRITICAL}
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                network,
                (images,),
                dynamo=True,
                opset_version=opset,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@torch.no_grad()
def _difference(data: bytes, network: nn.Module, images: Tensor) -> float:
    """The largest difference between both models' logits, on a batch of another size than the traced one."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise PreceptorError("export checks its file with onnxruntime; install preceptor[onnx]") from None
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"images": images.numpy()})
    expected = network(images)
    largest = float(expected.abs().max().clamp_min(1e-6))
    return float((torch.from_numpy(found) - expected).abs().max()) / largest
