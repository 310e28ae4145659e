"""``preceptor zoo``: add, list, show, verify and remove teachers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preceptor.cli.console import emit_json, progress, say, show_table, terminal_width
from preceptor.cli.options import AsJson, TrustCode
from preceptor.cli.task import OnBadImage, read_task
from preceptor.cli.zoo_options import parse_preprocessing, read_classes
from preceptor.core import PreceptorError
from preceptor.wording import counted, listed, with_comma_quoted

if TYPE_CHECKING:
    from preceptor.zoo import Card, Zoo

zoo_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keep teachers: add, list, show, verify, remove.",
)

ZooArgument = Annotated[
    str, typer.Argument(metavar="ZOO", help="A folder, or a URL such as s3://bucket/zoo.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The teacher's name in the zoo.")]
LISTED = ("name", "source", "classes", "features", "parameters", "input", "accuracy", "centres")


@zoo_app.command("add")
def add(
    zoo: ZooArgument,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="timm:NAME, torchvision:NAME, hf:FOLDER, onnx:FILE, run:RUN or python:module:factory.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", "-n", help="Its name in the zoo.")],
    weights: Annotated[
        Path | None,
        typer.Option("--weights", "-w", help="A .safetensors or .pth file; no code in it is run."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Class names: a,b,c (one with a comma: '\"salt, pepper\",b'), or a file (one a line, or a JSON "
            "list), or imagenet-1k."
        ),
    ] = None,
    input_size: Annotated[
        str | None, typer.Option(help="C,H,W of its inputs (or one number for vectors).")
    ] = None,
    resize: Annotated[
        int | None, typer.Option(help="Resize the shorter side to this before cropping.")
    ] = None,
    crop: Annotated[str | None, typer.Option(help="center, square, squash or none.")] = None,
    interpolation: Annotated[str | None, typer.Option(help="nearest, bilinear or bicubic.")] = None,
    mean: Annotated[
        str | None, typer.Option(help="Mean for each channel of images in [0, 1], or one for all.")
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Standard deviation for each channel, or one for all.")
    ] = None,
    centers_from: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Data with all its classes, to compute class centres from."),
    ] = None,
    on_bad_image: OnBadImage = "fail",
    accuracy: Annotated[float | None, typer.Option(help="On its own test set, from 0 to 1.")] = None,
    licence: Annotated[str | None, typer.Option(help="Of the weights, such as apache-2.0.")] = None,
    untrained: Annotated[bool, typer.Option("--untrained", help="Random weights, on purpose.")] = False,
    linear_head: Annotated[
        bool,
        typer.Option(
            "--linear-head", help="Leave out what follows the last linear layer (SqueezeNet's ReLU)."
        ),
    ] = False,
    trust_code: TrustCode = False,
    device: Annotated[str, typer.Option(help="Where to compute class centres: auto, cpu, cuda, …")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Add a teacher, whole or not at all.

    The layer that gives the logits is found and proved; a network without one, or with weights that do not
    fit, is refused with the reason. Preprocessing is known for timm, torchvision, hf and run sources; for
    others, or to overrule it, give --mean and --std with --input-size.

    Example: preceptor zoo add zoo/ timm:resnet18 --name pets --weights pets.pth --classes cat,dog
    """
    from preceptor.zoo import Zoo

    opened = Zoo(zoo)
    opened.check_free(name)  # before the data for the centres is read
    with progress(f"adding {name}"):
        card = opened.add(
            source,
            name=name,
            classes=read_classes(classes),
            weights=weights,
            preprocessing=parse_preprocessing(source, input_size, resize, crop, interpolation, mean, std),
            centers_from=None if centers_from is None else read_task(centers_from, None, None, on_bad_image),
            accuracy=accuracy,
            licence=licence,
            untrained=untrained,
            linear_head=linear_head,
            trust_code=trust_code,
            device=device,
        )
    if as_json:
        emit_json(card.model_dump(mode="json"))
        return
    say(
        f"added {card.name}: {counted(len(card.classes), 'class', 'classes')}, "
        f"{counted(card.feature_size, 'feature')}, "
        f"head {card.head.path!r}, centres from {_centers(card)}" + ("" if card.trained else ", untrained")
    )


@zoo_app.command("list")
def list_teachers(zoo: ZooArgument, as_json: AsJson = False) -> None:
    """List the teachers of a zoo.

    Example: preceptor zoo list zoo/
    """
    rows = _open(zoo).listing()
    if as_json:
        emit_json(rows)
        return
    if not rows:
        say("the zoo is empty; `preceptor zoo add` puts a teacher in")
        return
    from preceptor.cli.tables import tables_within

    cells = [_cells(row) for row in rows]
    columns = {title: [row.get(title, "") for row in cells] for title in LISTED}
    names = {"name": columns.pop("name")}
    for table in tables_within(names, columns, terminal_width(), framed=False):
        show_table(table)


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """What a listing shows of a teacher, by column; of a broken one what is wrong with it."""
    if "problem" in row:
        return {"name": row["name"], "source": row["problem"]}
    return {
        "name": row["name"] + ("" if row["trained"] else " (untrained)"),
        "source": row["source"],
        "classes": str(row["classes"]),
        "features": str(row["feature_size"]),
        "parameters": f"{row['parameters'] / 1e6:.2f} M",
        "input": "x".join(str(n) for n in row["input_size"]),
        "accuracy": "" if row["accuracy"] is None else f"{row['accuracy']:.1%}",
        "centres": row["centers"],
    }


@zoo_app.command("show")
def show(zoo: ZooArgument, name: NameArgument, as_json: AsJson = False) -> None:
    """Show the card of a teacher.

    Example: preceptor zoo show zoo/ pets
    """
    card = _open(zoo).card(name)
    if as_json:
        emit_json(card.model_dump(mode="json"))
        return
    preprocessing = card.preprocessing
    shown = listed(map(with_comma_quoted, card.classes), 8)
    head = (
        f"{card.head.path}, {card.head.reduction} over positions"
        if card.head.reduction != "none"
        else card.head.path
    )
    lines = {
        "name": card.name,
        "source": f"{card.source.kind}:{card.source.reference}" + ("" if card.trained else " (untrained)"),
        "classes": f"{len(card.classes)}: {shown}",
        "features": str(card.feature_size),
        "parameters": f"{card.parameters:,}",
        "head": head + (" (linearised: what followed it is left out)" if card.head.linearised else ""),
        "feature maps": ", ".join(card.head.maps) or "none",
        "centres": _centers(card),
        "input": "x".join(str(n) for n in preprocessing.input_size),
        "resize, crop": f"{preprocessing.resize or 'none'}, {preprocessing.crop} "
        f"({preprocessing.interpolation})",
        "mean, std": f"{list(preprocessing.mean)}, {list(preprocessing.std)}",
        "accuracy": "not stated" if card.accuracy is None else f"{card.accuracy:.1%}",
        "licence": card.licence or "not stated",
        "added": f"{card.created:%Y-%m-%d %H:%M} UTC with "
        f"{', '.join(f'{k} {v}' for k, v in card.versions.items())}",
    }
    lines |= {
        f"file {file}": f"{record.size:,} bytes, sha256 {record.sha256}"
        for file, record in card.files.items()
    }
    width = max(len(key) for key in lines)
    for key, value in lines.items():
        say(f"{key:<{width}}  {value}")


@zoo_app.command("verify")
def verify(
    zoo: ZooArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Which; all by default.")] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Check sums, load, and compare a forward pass with the one recorded when each teacher was added.

    Exits with 1 if anything is wrong.

    Example: preceptor zoo verify zoo/
    """
    opened = _open(zoo)
    problems: dict[str, list[str]] = {}
    chosen = names or opened.names()
    with progress("verifying", total=len(chosen)) as bar:
        for name in chosen:
            problems[name] = opened.verify(name, trust_code=trust_code)
            bar.advance(bar.task_ids[0])
    if as_json:
        emit_json(problems)
    else:
        for name, found in problems.items():
            say(f"{name}: {'; '.join(found) or 'good'}")
    if any(problems.values()):
        raise typer.Exit(1)


@zoo_app.command("remove")
def remove(zoo: ZooArgument, name: NameArgument, as_json: AsJson = False) -> None:
    """Remove a teacher, or what a killed process left under its name in an object store.

    Example: preceptor zoo remove zoo/ pets
    """
    _open(zoo).remove(name)
    if as_json:
        emit_json({"removed": name})
    else:
        say(f"removed {name}")


def _open(url: str) -> Zoo:
    """A zoo that is there: a mistyped path is not an empty zoo."""
    from preceptor.zoo import Zoo

    zoo = Zoo(url)
    if not zoo.exists():
        raise PreceptorError(f"there is no zoo at {url!r}; `preceptor zoo add` makes one")
    return zoo


def _centers(card: Card) -> str:
    words = {"stored": "stored with its training", "data": "data", "classifier": "classifier rows"}
    return words[card.centers_source]
