"""Teachers out of the user's own code: ``python:module:factory``, run only when trusted."""

from __future__ import annotations

import importlib
import os
import sys

import torch
from torch import nn

from preceptor.core import PreceptorError
from preceptor.zoo.card import Card, Preprocessing
from preceptor.zoo.sources.candidate import Candidate, Request, need_classes
from preceptor.zoo.users_code import what
from preceptor.zoo.weights import load_strictly, read_state_dict


def fetch(request: Request) -> Candidate:
    """Call the factory; a weights file, if given, is loaded over what it made."""
    request.refuse("untrained")
    network = _call(request.reference, request.trust_code)
    if request.weights is not None:
        load_strictly(
            network,
            read_state_dict(request.weights),
            what=f"weights file {request.weights.name!r}",
            architecture=request.text,
        )
    classes = need_classes(
        request,
        getattr(network, "classes", None),
        f"the network of {request.text} has no attribute `classes`",
    )
    preprocessing = request.preprocessing or getattr(network, "preprocessing", None)
    if not isinstance(preprocessing, Preprocessing):
        raise PreceptorError(
            f"the network of {request.text} has no attribute `preprocessing` (a "
            "preceptor.zoo.Preprocessing): "
            "give --input-size, --mean and --std"
        )
    return Candidate(network, classes, preprocessing)


def rebuild(card: Card, files: dict[str, bytes], trust_code: bool) -> nn.Module:
    """What the factory makes, for the zoo's weights."""
    # The weights are stored: what the factory draws for new ones need not come from the caller's generator.
    with torch.random.fork_rng(devices=[]):
        return _call(card.source.reference, trust_code)


def refuse_untrusted(reference: str, trust_code: bool) -> None:
    """Raise unless the caller trusts the code."""
    if not trust_code:
        raise PreceptorError(
            f"python:{reference} runs code of that module; say --trust-code (trust_code=True) if you trust it"
        )


def _call(reference: str, trust_code: bool) -> nn.Module:
    refuse_untrusted(reference, trust_code)
    module_name, _, factory_name = reference.partition(":")
    if not module_name or not factory_name:
        raise PreceptorError(f"python:{reference} is incomplete; write python:module:factory")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not look beside the user's files
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise PreceptorError(f"python:{reference} cannot be imported: {error}") from error
    except Exception as error:  # whatever the user's module does while it is imported
        raise PreceptorError(f"python:{reference} cannot be imported: {what(error)}; mend it") from error
    try:
        network = factory()
    except Exception as error:  # likewise
        raise PreceptorError(f"python:{reference} made no network: {what(error)}; mend it") from error
    if not isinstance(network, nn.Module):
        raise PreceptorError(
            f"python:{reference} returned {type(network).__name__}; expected a torch nn.Module"
        )
    return network
