"""How `rank` scales: workers on Ray, thousands of teachers, a cached zoo, the pre-filter.

    python benchmarks/rank_scale.py                       everything; some ten minutes on two cores
    python benchmarks/rank_scale.py --teachers 1000 --workers 1 2 --parts ray cached
    python benchmarks/rank_scale.py --quick               small sizes; keeps nothing
    python benchmarks/rank_scale.py --render              the table from the kept numbers

Writes results/benchmarks/rank_scale.json and the table in docs/performance.md; parts that were left out stay as they
were, with the evidence of the run that made them. Figures are ratios within one run; the JSON holds the seconds too,
and the load of the machine: a speed-up measured while others use the cores says nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from preceptor.data import Task
from preceptor.metrics import METRICS
from preceptor.rank import rank
from preceptor.rank.confidence import half_samples
from preceptor.rank.halving import round_sizes, successive_halving
from preceptor.zoo import Card, Preprocessing, Teacher
from preceptor.zoo.card import FileRecord, HeadRecord, Source
from preceptor.zoo.network import TorchNetwork

INPUTS, FEATURES, TEACHER_CLASSES, CLASSES = 32, 16, 8, 5
HEAD = HeadRecord(path="2")


class SimulatedZoo:
    """Any number of teachers out of nothing: the name decides the weights. Nothing lies on the disk."""

    url = "simulated"

    def __init__(self, teachers: int, features: int = FEATURES) -> None:
        self.teachers, self.features = teachers, features

    def names(self) -> list[str]:
        """As many as asked for."""
        return [f"t{i:05d}" for i in range(self.teachers)]

    def card(self, name: str) -> Card:
        """A card without files."""
        record = FileRecord(sha256=hashlib.sha256(name.encode()).hexdigest(), size=4 * self.features * INPUTS)
        return Card(
            name=name,
            classes=tuple(f"c{i}" for i in range(TEACHER_CLASSES)),
            feature_size=self.features,
            parameters=self.features * INPUTS,
            preprocessing=Preprocessing.for_size([INPUTS]),
            source=Source(kind="module", reference="simulated"),
            head=HEAD,
            files={"weights.safetensors": record, "check.safetensors": record},
            centers_source="classifier",
            created=datetime(2026, 1, 1, tzinfo=UTC),
        )

    def load(self, name: str, device: str = "cpu", trust_code: bool = False) -> Teacher:
        """A random network."""
        generator = torch.Generator().manual_seed(int(name[1:]))
        body, head = nn.Linear(INPUTS, self.features), nn.Linear(self.features, TEACHER_CLASSES)
        with torch.no_grad():
            for parameter in (*body.parameters(), *head.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
        network = TorchNetwork(nn.Sequential(body, nn.ReLU(), head), HEAD, head.weight.data, head.bias.data)
        return Teacher(network, self.card(name)).to(device)


def simulated_task(samples: int, seed: int = 0) -> Task:
    random = np.random.default_rng(seed)
    labels = np.arange(samples) % CLASSES
    means = random.normal(size=(CLASSES, INPUTS))
    vectors = (means[labels] + random.normal(size=(samples, INPUTS))).astype(np.float32)
    return Task.from_arrays(
        vectors, labels, vectors[:CLASSES], labels[:CLASSES], [str(i) for i in range(CLASSES)]
    )


def resident() -> float:
    """Megabytes that this process, the driver, has allocated; pages of files and libraries do not count."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/smaps_rollup names no anonymous memory; this benchmark needs Linux")


def start_ray(workers: int) -> None:
    import ray

    os.environ["OMP_NUM_THREADS"] = "1"
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    # Workers that have imported torch, so that start-up is not in the figures.
    ray.get([ray.remote(_warm).remote() for _ in range(workers)])


def _warm() -> None:
    import preceptor.rank  # noqa: F401

    time.sleep(1)


def speed_up(workers: list[int], cache: Path) -> list[dict[str, float]]:
    """The same 60 teachers with more and more workers, each with one thread."""
    import ray

    zoo, task, rows = SimulatedZoo(60, features=256), simulated_task(3000), []
    for count in workers:
        start_ray(count)
        start = time.perf_counter()
        folder = cache / f"speed-{count}"
        rank(zoo, task, ["sinkhorn", "logme", "knn"], engine="ray", threads=1, cache=str(folder))
        rows.append({"workers": count, "seconds": time.perf_counter() - start, "load": os.getloadavg()[0]})
        ray.shutdown()
        shutil.rmtree(folder)
        print(rows[-1], flush=True)
    return [{**row, "speed_up": rows[0]["seconds"] / row["seconds"]} for row in rows]


def growth(teachers: list[int], cache: Path) -> list[dict[str, Any]]:
    """Time and driver memory against the number of teachers, first ranked on Ray, then recalled."""
    import ray

    task, rows = simulated_task(200), []
    start_ray(os.cpu_count() or 1)
    for count in teachers:
        folder, marks = cache / f"growth-{count}", []
        start = time.perf_counter()

        def mark(_row: Any, marks: list[tuple[float, float]] = marks, start: float = start) -> None:
            if len(marks) % 100 == 0 or len(marks) == 1:
                marks.append((time.perf_counter() - start, resident()))
            else:
                marks.append(marks[-1])

        rank(SimulatedZoo(count), task, ["leep"], engine="ray", threads=1, on_row=mark, cache=str(folder))
        seconds = time.perf_counter() - start
        again = time.perf_counter()
        rank(SimulatedZoo(count), task, ["leep"], engine="ray", threads=1, cache=str(folder))
        first, last = marks[count // 10][1], marks[-1][1]
        rows.append({
            "teachers": count,
            "seconds": seconds,
            "milliseconds_a_teacher": 1e3 * seconds / count,
            "second_half_over_first_half": (marks[-1][0] - marks[count // 2][0]) / marks[count // 2][0],
            "driver_megabytes_after_a_tenth": first,
            "driver_megabytes_at_the_end": last,
            "kilobytes_a_teacher": 1024 * (last - first) / (0.9 * count),
            "load": os.getloadavg()[0],
                "recall_seconds": time.perf_counter() - again,
        })  # fmt: skip
        print(rows[-1], flush=True)
        shutil.rmtree(folder)
    ray.shutdown()
    return rows


def cached(counts: list[int], cache: Path) -> list[dict[str, float]]:
    """Teachers whose features are cached, ranked by another metric: one at a time in memory."""
    task, rows = simulated_task(1000), []
    for count in counts:
        zoo, folder = SimulatedZoo(count, features=128), str(cache / f"cached-{count}")
        rank(zoo, task, ["leep"], threads=1, cache=folder)
        start, busy, before, peak = time.perf_counter(), time.process_time(), resident(), [0.0]
        rank(zoo, task, ["knn"], threads=1, cache=folder, on_row=lambda _, peak=peak: peak.append(resident()))
        rows.append({
            "teachers": count,
            "milliseconds_a_teacher": 1e3 * (time.perf_counter() - start) / count,
            # What other processes on the machine do does not count here.
            "cpu_milliseconds_a_teacher": 1e3 * (time.process_time() - busy) / count,
            "load": os.getloadavg()[0],
            "peak_growth_megabytes": max(peak) - before,
            "one_teacher_megabytes": len(task.train) * (128 + TEACHER_CLASSES) * 4 / 2**20,
        })  # fmt: skip
        print(rows[-1], flush=True)
        shutil.rmtree(folder)
    return rows


class SyntheticScores:
    """Teachers of a known spread of quality; features and logits are drawn, metrics are real."""

    def __init__(self, teachers: int, samples: int, metric: str, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.metric = METRICS[metric]
        self.names = [str(i) for i in range(teachers)]
        self.labels = random.permutation(np.arange(samples) % CLASSES)
        self.quality = 3 * random.beta(1.2, 2.5, size=teachers)
        self.seeds = random.integers(2**31, size=teachers)

    def tensors(self, teacher: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, logits and classifier rows."""
        random = np.random.default_rng(self.seeds[teacher])
        classifier = random.standard_normal((TEACHER_CLASSES, FEATURES)).astype(np.float32)
        means = random.standard_normal((CLASSES, FEATURES)).astype(np.float32) * np.float32(
            self.quality[teacher]
        )
        noise = random.standard_normal((len(self.labels), FEATURES), dtype=np.float32)
        features = means[self.labels] + noise
        return features, features @ classifier.T, classifier

    def score(self, tensors: tuple[np.ndarray, np.ndarray, np.ndarray], rows: np.ndarray) -> float:
        """The metric on some of the instances."""
        features, logits, classifier = tensors
        return self.metric(
            features=features[rows], logits=logits[rows], classifier=classifier, labels=self.labels[rows]
        )

    def evaluate(self, names: list[str], size: int) -> tuple[np.ndarray, np.ndarray]:
        """What the pre-filter asks for."""
        halves = half_samples(self.labels[:size], 8, seed=0)
        table = []
        for name in names:
            tensors = self.tensors(int(name))
            table.append([self.score(tensors, rows) for rows in (np.arange(size), *halves)])
        return np.array(table)[:, 0], np.array(table)[:, 1:].T


# metric, zoos, teachers in each, samples
PREFILTERS = [
    ("bridge", 100, 100, 3000),
    ("leep", 100, 100, 3000),
    ("leep", 3, 1000, 5000),
    ("sinkhorn", 100, 12, 900),
]


def prefilter(metric: str, zoos: int, teachers: int, samples: int) -> dict[str, Any]:
    """How often the full winner survives, and the share of forward passes saved."""
    same, saved, start = 0, [], time.perf_counter()
    for seed in range(zoos):
        zoo = SyntheticScores(teachers, samples, metric, seed)
        full = [zoo.score(zoo.tensors(i), np.arange(samples)) for i in range(teachers)]
        result = successive_halving(zoo.names, zoo.evaluate, list(round_sizes(samples, CLASSES)))
        same += zoo.names[int(np.argmax(full))] in result.survivors
        saved.append(result.saved_fraction(samples))
    row = {
        "metric": metric,
        "zoos": zoos,
        "teachers": teachers,
        "samples": samples,
        "same_winner": same,
        "saved_fraction": float(np.mean(saved)),
        "saved_fraction_least": float(np.min(saved)),
        "seconds": time.perf_counter() - start,
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--teachers", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--parts", nargs="+", default=["ray", "growth", "cached", "prefilter"])
    parser.add_argument(
        "--metrics", nargs="+", default=["bridge", "leep", "sinkhorn"], help="of the pre-filter"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    arguments = parser.parse_args()
    from common import RESULTS, kept, show, write  # beside this script; tests import its parts from elsewhere

    torch.set_num_threads(1)
    if not arguments.render:
        found = measure(arguments)
        print(table(found))
        if arguments.quick:
            return
        earlier = kept("rank_scale") if (RESULTS / "rank_scale.json").exists() else {}
        write("rank_scale", merged(earlier, found))
    show("rank_scale", table(kept("rank_scale")))


def measure(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The rows of the parts that were asked for, each with its evidence."""
    from common import evidence

    workers, teachers, counts, zoos = arguments.workers, arguments.teachers, [200, 400, 1000], None
    if arguments.quick:
        workers, teachers, counts, zoos = workers[:2], [100], [20], 2
    chosen = [setting for setting in PREFILTERS if setting[0] in arguments.metrics]
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="rank-scale-") as folder:
        if "ray" in arguments.parts:
            found["speed_up"] = speed_up(workers, Path(folder))
        if "growth" in arguments.parts:
            found["growth"] = growth(teachers, Path(folder))
        if "cached" in arguments.parts:
            found["cached"] = cached(counts, Path(folder))
        if "prefilter" in arguments.parts:
            found["prefilter"] = [prefilter(metric, zoos or many, *size) for metric, many, *size in chosen]
    proof = evidence()
    return {part: [{**row, "evidence": proof} for row in rows] for part, rows in found.items()}


def merged(earlier: dict[str, Any], found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Parts as they were just found; of the pre-filter, metrics that were left out stay."""
    result = {**earlier, **found}
    if "prefilter" in found:
        anew = {row["metric"] for row in found["prefilter"]}
        rest = [row for row in earlier.get("prefilter", []) if row["metric"] not in anew]
        result["prefilter"] = [*found["prefilter"], *rest]
    return result


def table(result: dict[str, Any]) -> str:
    """What was measured, in sentences."""
    lines = []
    if rows := result.get("speed_up"):
        told = ", ".join(f"{row['workers']}: {row['speed_up']:.2f}" for row in rows)
        lines.append(
            f"- Speed-up by Ray workers on {rows[0]['evidence']['cores']} cores (load {rows[0]['load']:.1f}): {told}."
        )
    for row in result.get("growth", []):
        lines.append(
            f"- {row['teachers']:,} simulated teachers on Ray: {row['milliseconds_a_teacher']:.0f} ms each, the second "
            f"half {row['second_half_over_first_half']:.2f} times as long as the first; the driver grows by "
            f"{row['kilobytes_a_teacher']:.1f} KB a teacher; asked again, all come from the journal in "
            f"{row['recall_seconds']:.1f} s."
        )
    for row in result.get("cached", []):
        lines.append(
            f"- {row['teachers']:,} cached teachers, another metric: {row['cpu_milliseconds_a_teacher']:.1f} ms of "
            f"processor time each, peak memory {row['peak_growth_megabytes']:.1f} MB over the start (one teacher has "
            f"{row['one_teacher_megabytes']:.1f} MB)."
        )
    for row in result.get("prefilter", []):
        lines.append(
            f"- Pre-filter by `{row['metric']}`, zoos of {row['teachers']:,} teachers and {row['samples']:,} samples: "
            f"the full winner survived in {row['same_winner']} of {row['zoos']} zoos, {row['saved_fraction']:.0%} of "
            f"the forward passes saved (at least {row['saved_fraction_least']:.0%})."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
