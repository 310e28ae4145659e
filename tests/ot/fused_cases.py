"""Runs the Triton kernel and prints its answers as JSON; Triton's interpreter has to be chosen before import."""

from __future__ import annotations

import json
import sys

import torch

from preceptor.ot.triton_sinkhorn import solve_fused


def main() -> None:
    given = torch.load(sys.argv[1], weights_only=True)
    answers = []
    for case in given:
        found = solve_fused(
            case["p"],
            case["q"],
            case["cost"],
            case["epsilon"],
            case["tolerance"],
            case["max_iterations"],
            case["beta0"],
        )
        answers.append(
            {name: getattr(found, name).tolist() for name in ("alpha", "beta", "error", "iterations")}
        )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
