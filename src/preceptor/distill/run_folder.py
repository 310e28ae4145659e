"""The folder of one run: config.json, log.jsonl, checkpoint/, model.safetensors, result.json."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.checkpoint import Checkpoint, checkpoint_files, load_checkpoint, save_checkpoint
from preceptor.distill.claim import claimed
from preceptor.distill.inputs import InputSpec
from preceptor.files import explain, local_path, remove_leftovers, write_atomically

# What may differ between a run and its resumption without changing what is computed.
_CIRCUMSTANCES = frozenset({"versions", "command", "commit", "created", "hardware", "processes"})
# A teacher's name and sha256 say which it is, and the fingerprint says which the data are.
_SPELLINGS = frozenset({"teacher.from", "start_from.from", "data.name"})
ROUNDING = 1e-6  # relative: so far apart may the same statistics come out another time
_NEEDED = frozenset({"arch", "classes", "input_shape", "mean", "std", "method"})  # to build its network again


def parse_object(text: str | bytes, file: Path) -> dict[str, Any]:
    """The JSON object of a run's file, or of one of its lines."""
    try:
        values = json.loads(text)
    except ValueError as error:  # of JSON, and of UTF-8
        raise PreceptorError(f"{file} is not valid JSON ({error}); restore it or train again") from None
    if not isinstance(values, dict):
        raise PreceptorError(f"{file} holds no JSON object; restore it or train again")
    return values


class RunFolder:
    """Reads and writes the files of a run. Only one process of a training may write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self.config_file = self.path / "config.json"
        self.log_file = self.path / "log.jsonl"
        self.model_file = self.path / "model.safetensors"
        self.result_file = self.path / "result.json"
        self.ranking_file = self.path / "ranking.json"  # of a whole `run`, which has its students beneath
        self.centers_file = self.path / "centers.safetensors"
        self.checkpoints = self.path / "checkpoint"
        self._claim = ExitStack()

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config_file.exists()

    def prepare(
        self, config: dict[str, Any], *, resume: bool, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Claim the folder for a run with `config`, and check that a run in it is the same.

        The claim lasts until `free`; a finished run, which is only read, is not claimed.

        Args:
            config: What config.json is to hold.
            resume: Whether a run in the folder may go on.
            defaults: What holds where a configuration says nothing.

        Returns:
            The configuration of the run: `config`, or that with which the run in the folder began.
        """
        if not (resume and self.result_file.exists()):
            with self.writing("config.json"):
                self._claim.enter_context(claimed(self.path, "config.json"))
        if self.exists:
            if not resume:
                raise PreceptorError(
                    f"{self.path} already holds a run; pass resume=True (--resume) to continue it, or choose "
                    "another folder"
                )
            self._check_same(config, defaults or {})
            remove_leftovers(self.path)
            return self.read_config()
        if self.ranking_file.exists():
            raise PreceptorError(
                f"{self.path} already holds a ranking, or a `run` that is not finished; choose another folder"
            )
        return config

    def free(self) -> None:
        """Let others into the folder again."""
        self._claim.close()

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write config.json, with which a run begins; that of one that goes on stays as it is."""
        if not self.exists:
            self.write_config(config)

    def forget(self) -> None:
        """Take config.json away again where a run failed before it came to anything: the folder is free."""
        if not self.log_size() and not checkpoint_files(self.checkpoints):
            self.config_file.unlink(missing_ok=True)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json."""
        with self.writing("config.json"):
            write_atomically(self.config_file, _json(config))

    def as_begun(self, spec: InputSpec) -> InputSpec:
        """`spec` with the mean and deviation that the run in this folder began with, where only rounding parts them.

        Their last digits depend on the order of a sum, so on the number of threads; a run has one normalisation.
        """
        if not self.exists:
            return spec
        config = self.read_config()
        begun = replace(spec, mean=tuple(config["mean"]), std=tuple(config["std"]))
        return begun if _same_statistics(begun, spec) else spec

    def _check_same(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        told = (self.read_config(), json.loads(_json(config)))
        old, new = (_as_meant({**_flat(defaults), **_flat(values)}) for values in told)
        keys = [
            key
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key) and not {key, key.split(".")[0]} & (_CIRCUMSTANCES | _SPELLINGS)
        ]
        if keys == ["view"]:  # which nobody sets
            raise PreceptorError(
                f"the run in {self.path} was begun with images of another size for the teacher, by another version of "
                "preceptor; train anew in another folder"
            )
        if keys:
            differing = [f"{key} was {_short(old.get(key))} and is {_short(new.get(key))}" for key in keys]
            raise PreceptorError(
                f"the run in {self.path} cannot be resumed with other settings: {'; '.join(differing)}; "
                "give the same ones or choose another folder"
            )

    def read_config(self) -> dict[str, Any]:
        """The run's config.json."""
        config = self._read(self.config_file)
        missing = sorted(_NEEDED - config.keys())
        if missing:
            raise PreceptorError(
                f"{self.config_file} is no run's: it lacks {', '.join(missing)}; name the folder that was given as "
                "out (--out)"
            )
        return config

    def read_result(self) -> dict[str, Any] | None:
        """The run's result.json, or None while it is not finished."""
        return self._read(self.result_file) if self.result_file.exists() else None

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            return parse_object(file.read_bytes(), file)
        except (FileNotFoundError, NotADirectoryError):
            if self.ranking_file.exists() and any(
                self.path.glob("*/config.json")
            ):  # students, of which none is kept
                raise PreceptorError(
                    f"the run in {self.path} is not finished; go on with the same command and resume=True (--resume)"
                ) from None
            reason = "a file" if self.path.is_file() else f"no run: it has no {file.name}"
            raise PreceptorError(
                f"{self.path} is {reason}; name a run's folder, the one that was given as out (--out)"
            ) from None

    def append_log(self, record: Mapping[str, Any]) -> None:
        """Add one line to log.jsonl in a single write."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with self.writing("log.jsonl"):
            descriptor = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def write_log(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write log.jsonl as a whole."""
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
        with self.writing("log.jsonl"):
            write_atomically(self.log_file, lines.encode())

    def log_size(self) -> int:
        """Bytes in the log, noted in a checkpoint so that resuming can cut off what came after it."""
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def cut_log(self, size: int) -> None:
        """Drop what was logged after the checkpoint that a run goes on from."""
        if self.log_file.exists():
            os.truncate(self.log_file, size)

    def read_log(self) -> list[dict[str, Any]]:
        """The log's records; a last line cut short by a kill is left out."""
        if not self.log_file.exists():
            return []
        lines = self.log_file.read_bytes().split(b"\n")
        return [parse_object(line, self.log_file) for line in lines[:-1]]

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; the one before it stays until this one is whole."""
        with self.writing("a checkpoint"):
            save_checkpoint(self.checkpoints, checkpoint)

    def load_checkpoint(self) -> Checkpoint | None:
        """The last good checkpoint."""
        return load_checkpoint(self.checkpoints)

    def last_checkpoint(self) -> str:
        """Words for a message: where the last good checkpoint is."""
        files = checkpoint_files(self.checkpoints)
        if not files:
            return "no checkpoint was written yet"
        return f"the last good checkpoint is {files[-1]}"

    def write_model(self, state: Mapping[str, Tensor]) -> None:
        """Write model.safetensors."""
        self._write_tensors(self.model_file, state)

    def write_centers(self, centers: Tensor) -> None:
        """Write centers.safetensors: the class means of the features over the training set."""
        self._write_tensors(self.centers_file, {"centers": centers})

    def read_model(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors."""
        if not self.model_file.exists():
            raise PreceptorError(
                f"{self.path} has no model.safetensors: the run is not finished; start the same again with "
                "resume=True (--resume)"
            )
        try:
            self.model_file.open("rb").close()  # says why not, where safetensors says that there is no file
            return load_file(self.model_file)
        except PermissionError as error:
            raise PreceptorError(explain(error)) from None
        except (SafetensorError, OSError) as error:
            raise PreceptorError(
                f"{self.model_file} cannot be read ({error}); restore it or train again"
            ) from error

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json, the last file of a run."""
        with self.writing("result.json"):
            write_atomically(self.result_file, _json(result))

    def _write_tensors(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        with self.writing(file.name):
            write_atomically(file, save(copies, metadata={"format": "pt"}))

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Turn a full disk into a message that says what to do."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise PreceptorError(
                f"the disk is full: {what} of {self.path} could not be written; {self.last_checkpoint()}; "
                "free some space and start the same again with resume=True (--resume; `preceptor demo` needs none)"
            ) from error


def _same_statistics(one: InputSpec, other: InputSpec) -> bool:
    if (len(one.mean), len(one.std)) != (len(other.mean), len(other.std)):
        return False
    means, deviations = np.array([one.mean, other.mean]), np.array([one.std, other.std])
    scale = np.abs(deviations).max(0)  # of a mean near 0 as well
    near = np.abs(np.diff(means, axis=0)) <= ROUNDING * np.maximum(np.abs(means).max(0), scale)
    return bool(near.all() and (np.abs(np.diff(deviations, axis=0)) <= ROUNDING * scale).all())


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flat(entry, f"{prefix}.{key}" if prefix else key)
    return flat


def _as_meant(flat: dict[str, Any]) -> dict[str, Any]:
    """With one name for what has two."""
    return {
        key: None if key.endswith("recipe.augment") and value == "none" else value
        for key, value in flat.items()
    }


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
