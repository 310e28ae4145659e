"""Run experiments: train what is missing in packs, measure what needs no training, append rows to results/.

    python experiments/run.py fig05 few --data DATA --work RUNS --budget 580
    python experiments/run.py fig05 --data DATA --work RUNS --only student=wrn-16-1 seed=0 method=none,sinkhorn
    python experiments/run.py all --scale smoke --work /tmp/work --results /tmp/results

Ending it at any time loses a minute's work; the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments import results
from experiments.items import ITEMS
from experiments.jobs import PAPER, SMOKE, Job, Scale
from experiments.lab import Lab
from experiments.runner import Runner
from preceptor.core import PreceptorError


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", choices=[*ITEMS, "all"], metavar="EXPERIMENT",
                        help=f"one or more of {', '.join(ITEMS)}, all")  # fmt: skip
    parser.add_argument("--scale", choices=("smoke", "paper"), default="paper")
    parser.add_argument("--data", type=Path, help="folder with cifar100.npz, cub200/ and domains/")
    parser.add_argument("--work", type=Path, required=True, help="folder for teachers and what else is kept")
    parser.add_argument("--results", type=Path, help="folder for rows; results/ by default, at paper scale")
    parser.add_argument(
        "--budget",
        type=float,
        default=math.inf,
        help="seconds; what is at work then is kept and goes on with the next call",
    )
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="FIELD=VALUE[,VALUE]", help="jobs of these values"
    )
    parser.add_argument("--pack", type=int, default=16, help="students in a pack at most")
    parser.add_argument("--epochs", type=int, help="of students")
    parser.add_argument("--teacher-epochs", type=int)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument(
        "--part",
        choices=("teachers", "train", "measure"),
        help="do only this: train the jobs' teachers, train the jobs, measure; all by default",
    )
    parser.add_argument("--no-compile", action="store_true", help="do not compile networks")
    parser.add_argument("--bfloat16", action="store_true", help="train in bfloat16 on the CPU as on a GPU; "
                        "twice as fast where the processor has instructions for it")  # fmt: skip
    parser.add_argument("--apart", action="store_true", help="do not make one network of students of one "
                        "architecture, which pays on a GPU alone")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="say what there is to do, and do nothing")
    return parser


def scale_of(args: argparse.Namespace) -> Scale:
    """The named scale with single values changed."""
    changes = {"epochs": args.epochs, "teacher_epochs": args.teacher_epochs,
               "seeds": tuple(args.seeds) if args.seeds else None}  # fmt: skip
    return replace(
        SMOKE if args.scale == "smoke" else PAPER, **{k: v for k, v in changes.items() if v is not None}
    )


def chosen(job: Job, conditions: list[str]) -> bool:
    """Whether a job has the wanted values; ``teacher`` is its architecture, a comma before a space part of a name."""
    fields = {
        **job.__dict__,
        "teacher": job.teacher.arch,
        "teacher_task": job.teacher.task,
        "teacher_data": job.teacher.data,
        "variant": job.name,
    }
    for condition in conditions:
        name, _, values = condition.partition("=")
        if name not in fields:
            raise SystemExit(f"--only {condition}: jobs have the fields {', '.join(sorted(fields))}")
        if str(fields[name]) not in re.split(",(?! )", values):
            return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Returns the number of trainings, or of teachers where only those were asked for, that are still to be done."""
    args = options().parse_args(arguments)
    results.commit()  # of the code that runs now
    if args.scale == "smoke" and args.results is None:
        raise SystemExit("--scale smoke needs --results: toy numbers do not go where the real ones are")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    if device == "cuda":
        torch._dynamo.config.recompile_limit = 256  # a compiled pass for each architecture, batch and mode
    scale = scale_of(args)
    lab = Lab(scale, args.work, args.data, args.results or results.RESULTS, device,
              compiled=device == "cuda" and not args.no_compile, bfloat16=args.bfloat16,
              merged=not args.apart)  # fmt: skip
    names = list(ITEMS) if "all" in args.experiments else args.experiments
    jobs = [job for name in names for job in ITEMS[name].jobs(scale) if chosen(job, args.only)]
    jobs = sorted(dict.fromkeys(jobs), key=lambda job: job.tier)
    runner = Runner(lab, args.budget, args.pack, log=lambda text: print(text, flush=True))
    if args.list:
        return runner.forecast(jobs)
    left = 0
    if args.part == "teachers":
        left = runner.teachers(jobs)
    elif args.part != "measure":
        left = runner.run(jobs)
    if args.part in (None, "measure"):
        for name in names:
            if hasattr(ITEMS[name], "measure") and runner.sitting.left > 0:
                ITEMS[name].measure(lab)
    return left


if __name__ == "__main__":
    try:
        print(f"{main()} left")
    except PreceptorError as error:
        raise SystemExit(f"run.py: {error}") from None
