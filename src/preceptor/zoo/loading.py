"""From a card and its files, already checked against their sums, to a teacher."""

from __future__ import annotations

from torch import nn

from preceptor.core import PreceptorError
from preceptor.zoo.card import CENTERS_FILE, WEIGHTS_FILE, Card
from preceptor.zoo.network import TorchNetwork
from preceptor.zoo.probe import probe_inputs
from preceptor.zoo.sources import source_module
from preceptor.zoo.teacher import Teacher
from preceptor.zoo.weights import load_strictly, parse_safetensors


def check_trust(card: Card, trust_code: bool) -> None:
    """Refuse a teacher that runs code of its own where that is not trusted."""
    if card.source.kind == "python":
        source_module("python").refuse_untrusted(card.source.reference, trust_code)


def load(card: Card, files: dict[str, bytes], trust_code: bool) -> Teacher:
    """Build the network anew, load its weights strictly, and put the teacher together."""
    network = source_module(card.source.kind).rebuild(card, files, trust_code)
    if WEIGHTS_FILE in files and isinstance(network, nn.Module) and card.source.kind != "onnx":
        state = parse_safetensors(files[WEIGHTS_FILE], WEIGHTS_FILE)
        load_strictly(
            network,
            state,
            what=f"{card.name}/{WEIGHTS_FILE}",
            architecture=f"{card.source.kind}:{card.source.reference}",
        )
        network = TorchNetwork.rebuild(
            network, card.head, probe_inputs(card.preprocessing.input_size, rows=2)
        )
    centers = None
    if card.centers_source != "classifier":
        stored = parse_safetensors(files[CENTERS_FILE], CENTERS_FILE)
        if "centers" not in stored:
            raise PreceptorError(f"{card.name}/{CENTERS_FILE} has no tensor 'centers'")
        centers = stored["centers"]
    return Teacher(network, card, centers)
