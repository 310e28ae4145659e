"""`preceptor train` and `preceptor distill`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preceptor.cli.console import emit_json, first_process, say, to_stderr
from preceptor.cli.options import AsJson, TrustCode, parse_options
from preceptor.cli.task import Classes, OnBadImage, Unlabelled, Window, read_more, read_task
from preceptor.core import PreceptorError
from preceptor.wording import counted

if TYPE_CHECKING:
    from preceptor.distill.result import Result
    from preceptor.zoo import Card

_RECIPE = "Recipe"
_RUN = "Run"

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="Folder, .npz, cifar10:ROOT, cifar100:ROOT or glyphs:TASK.")
]
Out = Annotated[str | None, typer.Option("--out", help="The run folder.", rich_help_panel=_RUN)]
RecipeName = Annotated[
    str, typer.Option("--recipe", rich_help_panel=_RECIPE,
                      help="small, mixed, patient, photographs, finetune, quick, adamw, cifar100, cub, paper, "
                      "cub-paper.")
]  # fmt: skip
Epochs = Annotated[int | None, typer.Option(help="Passes over the training set.", rich_help_panel=_RECIPE)]
Lr = Annotated[float | None, typer.Option("--lr", help="Learning rate.", rich_help_panel=_RECIPE)]
BatchSize = Annotated[int | None, typer.Option(help="Over all processes.", rich_help_panel=_RECIPE)]
Optimizer = Annotated[str | None, typer.Option(help="sgd or adamw.", rich_help_panel=_RECIPE)]
LrSchedule = Annotated[str | None, typer.Option(help="step, cosine or constant.", rich_help_panel=_RECIPE)]
WeightDecay = Annotated[float | None, typer.Option(help="Pull of the weights to 0.", rich_help_panel=_RECIPE)]
Augment = Annotated[
    str | None, typer.Option(help="none, flip, pad-crop-flip, random-resized-crop-flip, randaugment, joined by +; for "
                             "vectors noise.", rich_help_panel=_RECIPE)
]  # fmt: skip
Mixup = Annotated[float | None, typer.Option(help="Alpha of mixup; 0: none.", rich_help_panel=_RECIPE)]
MixupUntil = Annotated[
    float | None, typer.Option(help="Share of the training in which mixup acts.", rich_help_panel=_RECIPE)
]
Smoothing = Annotated[
    float | None,
    typer.Option("--label-smoothing", help="Share of a label that all classes get.", rich_help_panel=_RECIPE),
]
Ema = Annotated[
    float | None, typer.Option(help="Decay of a moving average of the weights.", rich_help_panel=_RECIPE)
]
Clip = Annotated[float | None, typer.Option(help="Largest gradient norm.", rich_help_panel=_RECIPE)]
Accumulate = Annotated[int | None, typer.Option(help="Parts that a batch goes in.", rich_help_panel=_RECIPE)]
Precision = Annotated[
    str | None, typer.Option(help="auto, 32-true, bf16-mixed or 16-mixed.", rich_help_panel=_RECIPE)
]
Patience = Annotated[
    int | None, typer.Option(help="Stop after so many epochs without a better validation accuracy.",
                             rich_help_panel=_RECIPE)
]  # fmt: skip
ImageSize = Annotated[
    int | None, typer.Option(help="Side of the squares that networks see. [default: the images' shorter side]",
                             rich_help_panel=_RECIPE)
]  # fmt: skip
Seed = Annotated[
    int, typer.Option(min=0, help="Of weights, data order and augmentation.", rich_help_panel=_RUN)
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.", rich_help_panel=_RUN)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", rich_help_panel=_RUN)]
Compile = Annotated[bool, typer.Option("--compile", help="Use torch.compile.", rich_help_panel=_RUN)]
Graphs = Annotated[bool, typer.Option("--graphs", help="Run steps as a CUDA graph.", rich_help_panel=_RUN)]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write TensorBoard files.", rich_help_panel=_RUN)
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        help="Steps between checkpoints [at an epoch's end, every 10 s at most].", rich_help_panel=_RUN
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", help="A setting of recipe or method, as epochs=30 or weight=3; may be repeated."
    ),
]


def train(
    data: Data,
    arch: Annotated[
        str, typer.Option("--arch", help="wrn-16-1, resnet-18, mobilenet-0.5, cnn-16, timm:NAME, …")
    ],
    start_from: Annotated[
        str | None, typer.Option(help="Fine-tune: begin with the weights of this teacher, ZOO/NAME.")
    ] = None,
    trust_code: TrustCode = False,
    option: Options = None,
    out: Out = None,
    zoo: Annotated[str | None, typer.Option(help="Register the model as a teacher in this zoo.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name there.")] = None,
    classes: Classes = None,
    window: Window = None,
    on_bad_image: OnBadImage = "fail",
    recipe: RecipeName = "small",
    epochs: Epochs = None,
    lr: Lr = None,
    batch_size: BatchSize = None,
    optimizer: Optimizer = None,
    lr_schedule: LrSchedule = None,
    weight_decay: WeightDecay = None,
    augment: Augment = None,
    mixup: Mixup = None,
    mixup_until: MixupUntil = None,
    label_smoothing: Smoothing = None,
    ema: Ema = None,
    clip: Clip = None,
    accumulate: Accumulate = None,
    precision: Precision = None,
    patience: Patience = None,
    image_size: ImageSize = None,
    seed: Seed = 0,
    resume: Resume = False,
    device: Device = "auto",
    compile_networks: Compile = False,
    graphs: Graphs = False,
    tensorboard: TensorBoard = False,
    checkpoint_every: CheckpointEvery = None,
    as_json: AsJson = False,
) -> None:
    """Train a plain model, from scratch or from a teacher's weights.

    Example: preceptor train glyphs:letters --arch cnn-16 --out runs/letters --zoo zoo --name letters
    """
    overrides = _given(
        epochs=epochs, lr=lr, batch_size=batch_size, optimizer=optimizer, lr_schedule=lr_schedule,
        weight_decay=weight_decay, augment=augment, mixup=mixup, mixup_until=mixup_until,
        label_smoothing=label_smoothing, ema=ema,
        clip=clip, accumulate=accumulate, precision=precision, patience=patience, image_size=image_size,
    )  # fmt: skip
    if (zoo is None) != (name is None):
        raise typer.BadParameter("--zoo and --name go together")
    if zoo is not None and out is None:
        raise typer.BadParameter("--zoo needs --out: the teacher is read from the run folder")
    from preceptor.distill.train import train as run_training

    options = overrides | parse_options(option or [], train, run_training)
    if zoo is not None and name is not None:
        _check_free(zoo, name)
    task = read_task(data, classes, window, on_bad_image, tested=True)
    _warn_unkept(out)
    result = run_training(
        task, student=arch, start_from=start_from, recipe=recipe, out=out, seed=seed, resume=resume, device=device,
        compile=compile_networks, graphs=graphs, tensorboard=tensorboard, checkpoint_every=checkpoint_every,
        write_centers=True, trust_code=trust_code, **options,
    )  # fmt: skip
    if first_process():
        card = None
        if zoo is not None and name is not None:
            card = _register(zoo, name, str(result.path))
        _show(result, as_json, {} if card is None else {"teacher": f"{str(zoo).rstrip('/')}/{card.name}"})


def distill(
    data: Data,
    teacher: Annotated[str | None, typer.Option(help="Where the teacher lies: ZOO/NAME.")] = None,
    student: Annotated[str, typer.Option(help="The student's architecture.")] = "wrn-16-1",
    method: Annotated[
        str, typer.Option(help="sinkhorn, kd, rkd, probe-kd, …; none: the student alone.")
    ] = "sinkhorn",
    option: Options = None,
    out: Out = None,
    with_baseline: Annotated[
        bool, typer.Option("--with-baseline", help="Train the plain student too, and compare.")
    ] = False,
    trust_code: TrustCode = False,
    cache_teacher: Annotated[
        bool,
        typer.Option("--cache-teacher", help="Ask the teacher once a sample (no augmentation, no mixup)."),
    ] = False,
    classes: Classes = None,
    window: Window = None,
    on_bad_image: OnBadImage = "fail",
    unlabelled: Unlabelled = None,
    recipe: RecipeName = "small",
    epochs: Epochs = None,
    lr: Lr = None,
    batch_size: BatchSize = None,
    optimizer: Optimizer = None,
    lr_schedule: LrSchedule = None,
    weight_decay: WeightDecay = None,
    augment: Augment = None,
    mixup: Mixup = None,
    mixup_until: MixupUntil = None,
    label_smoothing: Smoothing = None,
    ema: Ema = None,
    clip: Clip = None,
    accumulate: Accumulate = None,
    precision: Precision = None,
    patience: Patience = None,
    image_size: ImageSize = None,
    seed: Seed = 0,
    resume: Resume = False,
    device: Device = "auto",
    compile_networks: Compile = False,
    graphs: Graphs = False,
    tensorboard: TensorBoard = False,
    checkpoint_every: CheckpointEvery = None,
    as_json: AsJson = False,
) -> None:
    """Distil a teacher into a student.

    Example: preceptor distill glyphs:digits --teacher zoo/letters --student cnn-8 --out runs/a
    """
    overrides = _given(
        epochs=epochs, lr=lr, batch_size=batch_size, optimizer=optimizer, lr_schedule=lr_schedule,
        weight_decay=weight_decay, augment=augment, mixup=mixup, mixup_until=mixup_until,
        label_smoothing=label_smoothing, ema=ema,
        clip=clip, accumulate=accumulate, precision=precision, patience=patience, image_size=image_size,
    )  # fmt: skip
    from preceptor.distill.schedules import distill as run_distillation
    from preceptor.distill.train import train as run_training

    options = overrides | parse_options(option or [], distill, run_distillation, run_training)
    task = read_task(data, classes, window, on_bad_image, tested=True)
    more = read_more(unlabelled, on_bad_image)
    _warn_unkept(out)
    result = run_distillation(
        student, task, teacher, method, out, recipe=recipe, seed=seed, resume=resume, trust_code=trust_code,
        unlabelled=more, with_baseline=with_baseline, cache_teacher=cache_teacher, device=device,
        compile=compile_networks, graphs=graphs, tensorboard=tensorboard, checkpoint_every=checkpoint_every, **options,
    )  # fmt: skip
    if first_process():
        _show(result, as_json, {})


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _warn_unkept(out: str | None) -> None:
    """Said before the training, which may take hours."""
    if out is None and first_process():
        to_stderr("the trained model will not be kept: name a folder for it with --out")


def _check_free(zoo: str, name: str) -> None:
    """Refuse a name that the zoo cannot take, or a zoo that takes none, before hours of training, not after."""
    from preceptor.zoo import Zoo

    Zoo(zoo).check_free(name)


def _register(zoo: str, name: str, out: str) -> Card:
    """Put the trained model into the zoo; the training is not lost where that fails after all."""
    from preceptor.files import explain
    from preceptor.zoo import Zoo

    try:
        return Zoo(zoo).add(f"run:{out}", name=name)
    except (PreceptorError, OSError) as error:
        reason = explain(error) if isinstance(error, OSError) else str(error)
        command = shlex.join(["preceptor", "zoo", "add", zoo, f"run:{out}", "--name", name])
        raise PreceptorError(
            f"the model is trained and lies in {out}, but is no teacher yet: {reason}; then register it with: {command}"
        ) from error


def _show(result: Result, as_json: bool, more: dict[str, Any]) -> None:
    if as_json:
        path = None if result.path is None else str(result.path)
        emit_json({"run": path, "method": result.config["method"], **result.to_json(), **more})
        return
    epochs = counted(len(result.history), "epoch")
    say(f"test accuracy {100 * result.accuracy:.2f} % after {epochs}, {result.seconds:.1f} s")
    for note in result.notes:
        say(note)
    if result.path is not None:
        say(f"run folder: {result.path}")
    for key, value in more.items():
        say(f"{key}: {value}")
