"""`preceptor predict` and `preceptor export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from preceptor.cli.console import emit_json, say
from preceptor.cli.options import AsJson

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def predict(
    run: Run,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES", help="Image files.")],
    top: Annotated[int, typer.Option(help="How many classes to show; --json has all.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Say which class each image is, and how sure the model is.

    Example: preceptor predict runs/a photo.png other.png
    """
    from preceptor.distill.saved_run import predict as predict_images

    predictions = predict_images(run, images)
    if as_json:
        emit_json([
            {"image": entry.path, "class": entry.classes[0],
             "probabilities": dict(zip(entry.classes, entry.probabilities, strict=True))}
            for entry in predictions
        ])  # fmt: skip
        return
    for entry in predictions:
        best = zip(entry.classes[:top], entry.probabilities[:top], strict=True)
        say(f"{entry.path}: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in best))


def export(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write, such as model.onnx.")],
    opset: Annotated[int, typer.Option(help="The ONNX operator set.")] = 18,
    as_json: AsJson = False,
) -> None:
    """Write a run's model as ONNX, checked in onnxruntime against the torch model.

    The graph takes images in [0, 1], or raw vectors; the normalisation is inside.

    Example: preceptor export runs/a model.onnx
    """
    from preceptor.distill.export import export as export_run

    done = export_run(run, file, opset=opset)
    if as_json:
        emit_json({
            "file": str(done.path), "opset": done.opset, "largest_difference": done.largest_difference,
            "input_shape": list(done.input_shape),
        })  # fmt: skip
        return
    say(
        f"{done.path}: opset {done.opset}, takes {done.takes}, differs from torch by "
        f"{done.largest_difference:.0e} of the largest logit"
    )
