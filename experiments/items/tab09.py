"""Tab. 9: do the teacher's class centres fall into CIFAR-100's superclasses?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from experiments import results
from experiments.book import Book, Sample, table
from experiments.items import fig05
from experiments.jobs import Job, Scale, TeacherSpec
from experiments.lab import Lab, RandomNetwork
from preceptor import ot

NAME, TITLE = "tab09", "Tab. 9: normalised mutual information of class centres with superclasses"
DATA, CLUSTERINGS, NETWORKS = "cifar100", 10, 3
PAPER = {"random": {1.0: 0.52, 0.8: 0.52, 0.6: 0.59, 0.4: 0.56, 0.2: 0.55, 0.0: 0.55},
         "teacher": {1.0: 0.80, 0.8: 0.72, 0.6: 0.77, 0.4: 0.76, 0.2: 0.79, 0.0: 0.81}}  # fmt: skip


@dataclass(frozen=True)
class Noise:
    """Points that know nothing of images: what NMI is by chance."""

    seed: int


def jobs(scale: Scale) -> list[Job]:
    """None: the teacher is that of Fig. 5."""
    return []


def nmi(centers: np.ndarray, groups: list[str]) -> list[float]:
    """Of k-means with as many clusters as there are superclasses, once for each seed."""
    count = len(set(groups))
    return [
        float(
            normalized_mutual_info_score(
                groups, KMeans(count, n_init=10, random_state=seed).fit_predict(centers)
            )
        )
        for seed in range(CLUSTERINGS)
    ]


def measure(lab: Lab) -> None:
    """The teacher's network and random ones of the same structure, for each task; raw and unit centres."""
    spec = lab.scale.teacher(DATA, fig05.TEACHERS[DATA])
    path = lab.results / f"{NAME}.jsonl"
    there = results.read(path)
    groups = lab.source(DATA).superclasses
    networks = {
        "teacher": [spec],
        "random": [RandomNetwork(spec.arch, seed) for seed in range(NETWORKS)],
        "noise": [Noise(seed) for seed in range(NETWORKS)],
    }
    for task in lab.scale.tasks(DATA):
        names = lab.task(DATA, task)[2]
        known = {row["network"] for row in there if row["task"] == task and row["teacher"] == spec.name}
        found = []
        for kind, network in ((kind, one) for kind, some in networks.items() for one in some):
            if kind in known:
                continue
            centers = _centers(lab, network, task, len(names))
            for norm, points in (("raw", centers), ("unit", torch.nn.functional.normalize(centers))):
                found.append({
                    "data": DATA, "task": task, "overlap": fig05.overlap_of(lab.scale, DATA, task), "network": kind,
                    "teacher": spec.name, "seed": network.seed, "centers": norm,
                    "clusters": len({groups[n] for n in names}), "nmi": nmi(points.numpy(), [groups[n] for n in names]),
                })  # fmt: skip
        if found:
            results.append(path, found)


def _centers(lab: Lab, network: TeacherSpec | RandomNetwork | Noise, task: int, classes: int) -> torch.Tensor:
    if isinstance(network, Noise):
        return torch.randn(classes, 128, generator=torch.Generator().manual_seed(network.seed))
    seen = lab.glance(network, DATA, task)
    return ot.class_centers(torch.from_numpy(seen.features), torch.from_numpy(seen.labels), classes)


def average(book: Book, network: str, overlap: float, centers: str) -> Sample:
    """Over networks and clusterings."""
    rows = book.rows(NAME, network=network, overlap=overlap, centers=centers)
    return Sample(tuple(value for row in rows for value in row["nmi"]))


def section(book: Book, folder: Path) -> str:
    """The table."""
    shares = [fig05.overlap_of(book.scale, DATA, task) for task in book.scale.tasks(DATA)]
    lines = []
    for network in PAPER:
        said = (f"{PAPER[network][share]:.2f}" if share in PAPER[network] else "–" for share in shares)
        lines.append([f"{network}, paper", *said])
        for centers in ("raw", "unit"):
            cells = [average(book, network, share, centers).shown(1, 2) for share in shares]
            lines.append([f"{network}, ours, {centers} centres", *cells])
    lines.append(["chance: random points", *(average(book, "noise", s, "raw").shown(1, 2) for s in shares)])
    clusters = ", ".join(str(row["clusters"]) for row in book.rows(NAME, network="teacher", centers="raw"))
    return (
        "K-means on the class centres of the student's task, as many clusters as its classes have superclasses "
        f"({clusters or 'about 20'}), ten seeds; centres are "
        "means of 100 training images a class; the random networks are three. Mean ± standard deviation (number of "
        "clusterings). The paper does not say how many clusters it asks for or whether centres have unit norm. "
        "With 50 points in some 20 clusters NMI is high by chance alone: the last row has random points. "
        "The paper's random networks lie below that, so it counted in another way; its teacher's "
        "numbers agree with ours.\n\n" + table(["", *(f"{share:.0%}" for share in shares)], lines)
    )
