"""Reading weights without running anything in them, and loading them strictly."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.wording import listed
from preceptor.zoo.limits import MAX_FILE_BYTES, check_size

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # what training scripts put around a state dict
_PREFIXES = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` or ``.pth`` file, by name.

    A ``.pth`` is read with ``weights_only=True``: code in it is never run, the file is refused instead.
    """
    path = Path(path)
    if not path.is_file():
        raise PreceptorError(f"no weights file {str(path)!r}; give the path of a .safetensors or .pth file")
    check_size(f"weights file {path.name!r}", path.stat().st_size, MAX_FILE_BYTES)
    if path.suffix == ".safetensors":
        return _unwrap(parse_safetensors(path.read_bytes(), path.name), path.name)
    _refuse_compressed(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old pickle protocols: they are read or refused, nothing else
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        # Where there is code in it, torch advises how to run it all the same; that is not our advice.
        why = "" if isinstance(error, pickle.UnpicklingError) else f" ({_first_line(error)})"
        raise PreceptorError(
            f"weights file {path.name!r} cannot be read as plain tensors, and code in it is never run: "
            f"save model.state_dict() as .safetensors or .pth{why}"
        ) from error
    return _unwrap(content, path.name)


def parse_safetensors(data: bytes, name: str) -> dict[str, Tensor]:
    """The tensors of safetensors `data`; `name` is for the error message."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise PreceptorError(
            f"{name!r} is no safetensors file, or a broken one: {_first_line(error)}"
        ) from error


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Safetensors bytes; the same tensors always give the same bytes."""
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in sorted(tensors.items())}
    return safetensors.torch.save(plain)


def network_tensors(network: nn.Module) -> dict[str, Tensor]:
    """A network's state dict, which must be tensors throughout."""
    state = network.state_dict()
    other = sorted(name for name, value in state.items() if not isinstance(value, Tensor))
    if other:
        raise PreceptorError(
            f"the network keeps state that is no tensor ({', '.join(other[:3])}); it cannot be stored"
        )
    return state


def load_strictly(network: nn.Module, state: Mapping[str, Tensor], *, what: str, architecture: str) -> None:
    """Load `state` into `network`; refuses, by name, whatever is missing, left over or of another shape.

    Nothing is ever left at its random start: a head that does not fit is a refusal, not a new head.
    """
    own = network_tensors(network)
    wrong = misfit(own, state)
    if wrong:
        raise PreceptorError(
            f"{what} does not fit {architecture} ({wrong}): nothing is filled in at random, so give "
            "the weights of this architecture and exactly their class names"
        )
    broken = [
        name for name, value in state.items() if value.is_floating_point() and not value.isfinite().all()
    ]
    if broken:
        raise PreceptorError(f"{what} holds numbers that are not finite, in {listed(broken, 4)}")
    network.load_state_dict({**own, **state})


def misfit(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """What of `state` is missing, left over or of another shape for a network's tensors; empty for nothing."""
    # Checkpoints from before batch norm counted its batches lack the counters, which eval mode never reads.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    left_over = [name for name in state if name not in own]
    reshaped = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    found = (("missing:", missing), ("left over:", left_over), ("other shapes:", reshaped))
    return "; ".join(f"{label} {listed(names, 4)}" for label, names in found if names)


def _refuse_compressed(path: Path) -> None:
    """Torch stores its archives uncompressed: a compressed one is a bomb, or not torch's."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    inside = {entry.filename.partition("/")[2] for entry in entries}
    if "constants.pkl" in inside or any(name.startswith("models/") for name in inside):
        raise PreceptorError(
            f"weights file {path.name!r} is a program (TorchScript or torch.export), not weights: "
            "save model.state_dict() as .safetensors or .pth, or export the model as ONNX for onnx:FILE"
        )
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise PreceptorError(
            f"weights file {path.name!r} is a compressed archive, which torch never writes; refused"
        )
    check_size(f"weights file {path.name!r} unpacked", sum(e.file_size for e in entries), MAX_FILE_BYTES)


def _unwrap(content: Any, name: str) -> dict[str, Tensor]:
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
            break
    if not isinstance(content, Mapping) or not content:
        raise PreceptorError(f"weights file {name!r} holds no state dict but {type(content).__name__}")
    other = [
        key for key, value in content.items() if not isinstance(key, str) or not isinstance(value, Tensor)
    ]
    if other:
        raise PreceptorError(
            f"weights file {name!r} holds {other[0]!r}, which is no tensor; save model.state_dict() alone"
        )
    for key, tensor in content.items():
        # A view that repeats one number a billion times fits in a tiny file.
        if tensor.layout == torch.strided and tensor.nbytes > tensor.untyped_storage().nbytes():
            raise PreceptorError(f"weights file {name!r} blows up {key!r} out of a smaller storage; refused")
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in content):
            content = {key.removeprefix(prefix): value for key, value in content.items()}
    return dict(content)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
