"""The correspondence between two label sets: in which order to draw it, and which classes it joins best and worst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOW_SHARE = 0.85  # of each class's mass, drawn by its strongest flows
FLOWS_A_CLASS = 3
MOST_TEACHER_CLASSES = 40


@dataclass(frozen=True)
class Flow:
    """Mass that a teacher's class sends to one of mine."""

    teacher: str
    task: str
    share: float  # of all mass that reaches my class


@dataclass(frozen=True)
class Correspondence:
    """Cost and mean plan between a teacher's classes and mine, rows and columns ordered by likeness."""

    teacher: str
    teacher_classes: tuple[str, ...]
    task_classes: tuple[str, ...]
    cost: np.ndarray  # (C_T, C_S)
    plan: np.ndarray  # (C_T, C_S)

    def flows(self) -> list[Flow]:
        """The strongest flows into each of my classes."""
        arriving = self.plan / np.maximum(self.plan.sum(0, keepdims=True), 1e-30)
        found = []
        for column, mine in enumerate(self.task_classes):
            reached = 0.0
            for row in np.argsort(-arriving[:, column])[:FLOWS_A_CLASS]:
                found.append(Flow(self.teacher_classes[row], mine, float(arriving[row, column])))
                reached += arriving[row, column]
                if reached >= FLOW_SHARE:
                    break
        return found

    def matches(self) -> list[tuple[str, str, float]]:
        """For each of my classes the nearest of the teacher's and the cost between them, nearest first."""
        nearest = self.cost.argmin(0)
        found = [
            (mine, self.teacher_classes[nearest[column]], float(self.cost[nearest[column], column]))
            for column, mine in enumerate(self.task_classes)
        ]
        return sorted(found, key=lambda match: match[2])


def read_correspondence(teacher: str, details: Mapping[str, Any]) -> Correspondence | None:
    """The correspondence in a ranking row's details, put in order; None where the row has none."""
    if "correspondence" not in details:
        return None
    raw = details["correspondence"]
    cost, plan = np.array(raw["cost"], dtype=float), np.array(raw["plan"], dtype=float)
    columns = likeness_order(cost.T)
    # Rows follow the columns they are nearest to, so that likeness shows as a diagonal.
    place = np.empty(len(columns), dtype=int)
    place[columns] = np.arange(len(columns))
    closeness = np.exp(-(cost - cost.min()) / (0.1 * max(np.ptp(cost), 1e-12)))
    rows = np.argsort((closeness * place).sum(1) / closeness.sum(1), kind="stable")
    return Correspondence(
        teacher,
        tuple(raw["teacher_classes"][row] for row in rows),
        tuple(raw["task_classes"][column] for column in columns),
        cost[np.ix_(rows, columns)],
        plan[np.ix_(rows, columns)],
    )


def likeness_order(points: np.ndarray) -> np.ndarray:
    """An order in which like rows stand side by side (the leaves of an optimally ordered hierarchy)."""
    if len(points) < 3:
        return np.arange(len(points))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import pdist

    # Distances, not the points: a square matrix of costs looks to scipy like distances already, and it warns.
    return leaves_list(linkage(pdist(points), method="average", optimal_ordering=True))
