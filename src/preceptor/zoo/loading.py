"""From a card and its files, already checked against their sums, to a teacher."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from preceptor.core import PreceptorError
from preceptor.defaults import own_defaults
from preceptor.zoo.card import CENTERS_FILE, CHECK_FILE, WEIGHTS_FILE, Card
from preceptor.zoo.network import TorchNetwork
from preceptor.zoo.probe import compare, probe_inputs
from preceptor.zoo.sources import source_module
from preceptor.zoo.teacher import Teacher
from preceptor.zoo.users_code import code_of, what
from preceptor.zoo.weights import load_strictly, misfit, network_tensors, parse_safetensors


def check_trust(card: Card, trust_code: bool) -> None:
    """Refuse a teacher that runs code of its own where that is not trusted."""
    if card.runs_code:
        source_module("python").refuse_untrusted(card.source.reference, trust_code)


@own_defaults()
def load(card: Card, files: dict[str, bytes], trust_code: bool) -> Teacher:
    """Build the network anew, load its weights strictly, and put the teacher together."""
    with code_of(card.source):
        network = source_module(card.source.kind).rebuild(card, files, trust_code)
        return _load_code(card, files, network) if card.runs_code else _assemble(card, files, network)


@own_defaults()
def differences(teacher: Teacher, files: dict[str, bytes]) -> list[str]:
    """What differs between the recorded forward pass and the same one now, in words; empty for nothing."""
    probe = teacher.card.probe
    inputs = probe_inputs(teacher.preprocessing.input_size, probe.rows, probe.seed)
    recorded = parse_safetensors(files[CHECK_FILE], CHECK_FILE)
    return compare(recorded, teacher.outputs(inputs, maps=False), probe.tolerance)


def _load_code(card: Card, files: dict[str, bytes], network: nn.Module) -> Teacher:
    """A teacher whose network came out of the user's code, if that still does what it did.

    The recorded forward pass decides, not the text of the code: that lies in any number of modules and data
    files, and may change (a comment, another factory) without changing this teacher.
    """
    wrong = misfit(network_tensors(network), parse_safetensors(files[WEIGHTS_FILE], WEIGHTS_FILE))
    if wrong:
        raise _changed(card, f"for the stored weights, {wrong}")
    try:
        teacher = _assemble(card, files, network)
        found = differences(teacher, files)
    except (PreceptorError, MemoryError):
        raise
    except Exception as error:  # whatever the changed code does on a forward pass
        raise _changed(card, what(error)) from error
    if found:
        raise _changed(card, found[0])
    return teacher


def _changed(card: Card, how: str) -> PreceptorError:
    return PreceptorError(
        f"python:{card.source.reference} no longer makes the network that was added as {card.name!r} ({how}); "
        "restore its code, or remove the teacher (zoo remove) and add it again (zoo add)"
    )


def _assemble(card: Card, files: dict[str, bytes], network: Any) -> Teacher:
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
    return Teacher(network, card, _centers(card, files))


def _centers(card: Card, files: dict[str, bytes]) -> Tensor | None:
    if card.centers_source == "classifier":
        return None
    stored = parse_safetensors(files[CENTERS_FILE], CENTERS_FILE)
    if "centers" not in stored:
        raise PreceptorError(f"{card.name}/{CENTERS_FILE} has no tensor 'centers'")
    return stored["centers"]
