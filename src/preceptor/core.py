"""Small frozen types that everyone shares. Nothing here imports torch at run time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


RANKING_SCHEMA = 1  # raise it when older versions of `Ranking.from_json` would misread what is written


class PreceptorError(ValueError):
    """Something the user can mend: one sentence says what came, what was expected and what to do."""


@dataclass(frozen=True)
class Outputs:
    """What one teacher says about one split of a task: a row for each sample."""

    features: np.ndarray  # (N, d)
    logits: np.ndarray | None  # (N, C_T); None where the source has no classifier
    labels: np.ndarray  # (N,) integers below the task's class count

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ModelOutput:
    """One forward pass of a network: feature maps from shallow to deep, features, logits."""

    maps: tuple[Tensor, ...]  # each (B, c, h, w); empty where the network has none to give
    features: Tensor  # (B, d), the input of the last linear layer
    logits: Tensor  # (B, C)


@dataclass(frozen=True)
class RankingRow:
    """One teacher in a ranking. A teacher that could not be assessed has a reason and no rank."""

    name: str
    rank: int | None
    scores: Mapping[str, float]  # metric name -> score, higher is better
    reasons: Mapping[str, str] = field(default_factory=dict)  # metric name, or "teacher" -> why it is missing
    forward_seconds: float = 0.0
    metric_seconds: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)  # class pairs, probe accuracy, centres used, …


@dataclass(frozen=True)
class Ranking:
    """Teachers sorted by a metric, best first; teachers without a score stand at the end with their reasons."""

    metric: str
    rows: tuple[RankingRow, ...]
    task: Mapping[str, Any] = field(default_factory=dict)  # name, fingerprint, classes, samples
    agreement: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # Spearman between metrics
    confidence: Mapping[str, float] | None = None  # teacher -> chance that it is really first
    evidence: Mapping[str, Any] = field(default_factory=dict)
    zoo: str | None = None

    @property
    def best(self) -> str:
        """Where the leading teacher lies: ``ZOO/NAME``, or its bare name for a zoo in memory."""
        leaders = [row for row in self.rows if row.rank == 1]
        if not leaders:
            reasons = "; ".join(f"{row.name}: {', '.join(row.reasons.values())}" for row in self.rows)
            raise PreceptorError(
                f"no teacher could be ranked by {self.metric} ({reasons or 'the zoo is empty'})"
            )
        return f"{self.zoo.rstrip('/')}/{leaders[0].name}" if self.zoo else leaders[0].name

    def __getitem__(self, name: str) -> RankingRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no teacher {name!r} in this ranking; it has {[row.name for row in self.rows]}")

    def _repr_html_(self) -> str:
        """What a notebook shows: every teacher with its scores, or why it has none."""
        from preceptor.notebook import table

        metrics = list(dict.fromkeys([self.metric, *(name for row in self.rows for name in row.scores)]))
        rows = [
            (row.rank, row.name, *(row.scores.get(name) for name in metrics), "; ".join(row.reasons.values()))
            for row in self.rows
        ]
        caption = f"{self.task.get('name', 'the task')}: teachers by {self.metric}, best first"
        return table(["#", "teacher", *metrics, "remark"], rows, caption)

    def to_json(self, indent: int | None = 2) -> str:
        """The whole ranking as JSON; `Ranking.from_json` reads it back."""
        return json.dumps({"schema_version": RANKING_SCHEMA, **asdict(self)}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Ranking:
        """Read what `to_json` wrote, also that of other versions as long as they mean the same by it."""
        try:
            data = json.loads(text)
            version = data.get("schema_version", 1)  # the first rankings did not say
            if version > RANKING_SCHEMA:
                raise PreceptorError(
                    f"the ranking has schema version {version} and this preceptor reads up to {RANKING_SCHEMA}; "
                    "use a newer preceptor"
                )
            rows = tuple(RankingRow(**_known(RankingRow, _renamed(row))) for row in data.pop("rows"))
            return cls(rows=rows, **_known(cls, data))
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise PreceptorError(
                f"this is no ranking ({error!r}); write it again with `preceptor rank --out` or Ranking.to_json"
            ) from error


def _known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a class has fields for; a later version may have more."""
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def _renamed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its details under their present names: "correspondence" was called as the metric "bridge" is."""
    details = dict(row.get("details", {}))
    if "bridge" in details:
        details["correspondence"] = details.pop("bridge")
    return {**row, "details": details}
