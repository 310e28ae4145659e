"""Runs the Triton kernel and prints its answers as JSON; Triton's interpreter has to be chosen before import."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import torch

from preceptor.ot import fused
from preceptor.ot.triton_large import solve_large
from preceptor.ot.triton_sinkhorn import solve_fused


def distance(beta0: None, **case) -> SimpleNamespace:
    value, alpha, beta = fused.value_and_potentials(**case)
    return SimpleNamespace(value=value, alpha=alpha, beta=beta)


SOLVERS = {"fused": solve_fused, "large": solve_large, "distance": distance}


def main() -> None:
    given = torch.load(sys.argv[1], weights_only=True)
    answers = []
    for case in given:
        found = SOLVERS[sys.argv[2]](**case)
        answers.append(
            {key: x.tolist() if isinstance(x, torch.Tensor) else x for key, x in vars(found).items()}
        )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
