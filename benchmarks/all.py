"""Run every benchmark that this machine can, one after the other, and write docs/performance.md.

    python benchmarks/all.py             # some hours on two quiet cores
    python benchmarks/all.py --quick     # see that all of them run; keeps nothing
    python benchmarks/all.py --list

Each keeps its numbers with their evidence in results/benchmarks/. They compare within one run, so nothing else should
use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
# Name -> arguments of the full run, of the quick one (None: there is none), and whether it needs a CUDA device.
BENCHMARKS: dict[str, tuple[list[str], list[str] | None, bool]] = {
    "sinkhorn": (["--limit", "150"], ["--quick"], False),
    "ranking": ([], ["--quick"], False),
    "rank_scale": ([], ["--quick"], False),
    "extraction": ([], ["--quick"], False),
    "distill": ([], ["--quick"], False),
    "methods": ([], ["--quick"], False),
    "methods --patient": ([], ["--quick"], False),
    "methods --mixed": ([], ["--quick"], False),
    "characters": ([], ["--quick"], False),
    "counts": ([], ["--quick"], False),
    "demo": ([], ["--quick"], False),
    "choice": ([], ["--quick"], False),
    "sizes": ([], ["--quick"], False),
    "seen": ([], ["--quick"], False),
    "assessment": ([], ["--quick"], False),
    "sinkhorn_gpu": ([], None, True),
    "training_gpu": ([], None, True),
}


def main() -> int:
    """Returns how many failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true", help="only say what would run")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    failed = 0
    for name in arguments.names or BENCHMARKS:
        whole, quick, needs_gpu = BENCHMARKS[name]
        options = quick if arguments.quick else whole
        script, *words = name.split()
        if needs_gpu and not torch.cuda.is_available():
            print(f"{name}: left out, there is no CUDA device")
        elif options is None:
            print(f"{name}: left out, it has no quick form")
        elif arguments.list:
            print(" ".join(["python", f"benchmarks/{script}.py", *words, *options]))
        else:
            begun = time.perf_counter()
            command = [sys.executable, HERE / f"{script}.py", *words, *options]
            status = subprocess.run(command, check=False).returncode
            print(
                f"{name}: {'done' if status == 0 else f'failed ({status})'}, {time.perf_counter() - begun:.0f} s"
            )
            failed += status != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
