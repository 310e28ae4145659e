from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from preceptor.core import PreceptorError
from preceptor.data.images import decode
from preceptor.data.split import ListStore
from preceptor.data.task import Task
from preceptor.distill import export as module
from preceptor.distill.export import export
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.saved_run import load_run, predict, split_probabilities
from preceptor.distill.train import train
from preceptor.zoo import Zoo
from tests.distill.toys import toy_task, vector_task


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    train(toy_task(), student="cnn-4", epochs=6, out=folder)
    return folder


def test_the_onnx_file_says_what_the_torch_model_says(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    done = export(run, tmp_path / "a.onnx")
    assert done.opset == 18
    assert done.largest_difference < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    images = toy_task().test.load(np.arange(7)).float() / 255
    (logits,) = session.run(None, {"images": images.numpy()})
    saved = load_run(run)
    with torch.no_grad():
        expected = saved.network(saved.normalise(images))
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-4)
    properties = session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["classes"]) == list("abcd")
    assert (properties["range"], done.takes) == ("[0, 1]", "images (B, 1, 8, 8) in [0, 1]")


def test_a_graph_on_vectors_takes_them_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    task = vector_task()
    parts = ((split.load(slice(None)).numpy() * 1e8 + 5e9, split.labels) for split in (task.train, task.test))
    train(Task.from_arrays(*next(parts), *next(parts)), student="mlp-4", epochs=1, out=tmp_path / "v")
    saved, compared = load_run(tmp_path / "v"), []
    difference = module._difference
    monkeypatch.setattr(module, "_difference", lambda *given: compared.append(given[2]) or difference(*given))
    done = export(saved, tmp_path / "v.onnx")
    assert (done.input_shape, done.takes) == ((6,), "raw vectors (B, 6)")
    assert saved.normalise(compared[0]).abs().max() < 5, "compared on vectors as they are in the data"
    session = onnxruntime.InferenceSession(tmp_path / "v.onnx", providers=["CPUExecutionProvider"])
    properties = session.get_modelmeta().custom_metadata_map
    assert "range" not in properties
    assert Zoo(tmp_path / "zoo").add(f"onnx:{tmp_path / 'v.onnx'}", name="v").preprocessing.input_size == (6,)


def test_a_graph_that_computes_something_else_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(module, "_onnx_bytes", lambda *_: b"")
    monkeypatch.setattr(module, "_difference", lambda *_: 0.3)
    with pytest.raises(
        PreceptorError, match=r"differs from the torch model by 3.0e-01 .*nothing was written"
    ):
        export(run, tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_predictions_for_files_are_the_models(run: Path, tmp_path: Path) -> None:
    pixels = toy_task().test.load(np.arange(4))
    paths = []
    for index, image in enumerate(pixels):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(image[0].numpy()).save(paths[-1])
    found = predict(run, paths, batch_size=3)
    saved = load_run(run)
    with torch.no_grad():
        expected = saved.network(saved.normalise(pixels.float() / 255)).softmax(1)
    for entry, path, row in zip(found, paths, expected, strict=True):
        assert entry.path == str(path)
        assert entry.classes[0] == "abcd"[int(row.argmax())]
        torch.testing.assert_close(torch.tensor(entry.probabilities), row.sort(descending=True).values)


def test_an_image_of_another_size_is_brought_to_the_trained_one(run: Path, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((20, 31), dtype=np.uint8)).save(tmp_path / "a.png")
    (entry,) = predict(run, [tmp_path / "a.png"])
    assert sum(entry.probabilities) == pytest.approx(1.0)


def test_images_are_read_batch_by_batch_and_one_at_a_time_is_large(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(np.zeros((90, 90), dtype=np.uint8)).save(tmp_path / "a.png")
    saved, order = load_run(run), []
    saved.network.register_forward_pre_hook(lambda *_: order.append("forward"))

    def noted(*arguments: Any) -> np.ndarray:
        order.append("decode")
        return decode(*arguments)

    monkeypatch.setattr("preceptor.distill.saved_run.decode", noted)
    kept = []
    monkeypatch.setattr("preceptor.distill.saved_run.ListStore", lambda s: kept.extend(s) or ListStore(s))
    predict(saved, [tmp_path / "a.png"] * 3, batch_size=2)
    assert order == ["decode", "decode", "forward", "decode", "forward"]
    assert {pixels.shape for pixels in kept} == {(1, 8, 8)}


def test_the_home_folder_is_found_where_the_shell_leaves_its_sign(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(run)
    (tmp_path / "run").symlink_to(run)
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "a.png")
    assert len(predict("~/run", ["~/a.png"])) == 1
    assert export("~/run", "~/a.onnx").path == tmp_path / "a.onnx"
    assert train(vector_task(), student="mlp-4", epochs=1, out="~/t").path == tmp_path / "t"
    assert not (run / "~").exists()


def test_weights_load_into_plain_torch(run: Path) -> None:
    from preceptor.models import build

    network = build("cnn-4", 4, (1, 8, 8))
    network.load_state_dict(load_file(run / "model.safetensors"))


def test_weights_of_a_timm_model_load_into_timm(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    train(toy_task(train=16, size=32), student="timm:test_resnet.r160_in1k", epochs=1, out=tmp_path / "a")
    state = load_file(tmp_path / "a/model.safetensors")
    network = timm.create_model("test_resnet.r160_in1k", num_classes=4, in_chans=1)
    network.load_state_dict(state)


def test_refusals(run: Path, tmp_path: Path) -> None:
    with pytest.raises(PreceptorError, match=r"is no run: it has no config\.json"):
        load_run(tmp_path)
    with pytest.raises(PreceptorError, match="is no folder; make it first"):
        export(run, tmp_path / "nowhere/a.onnx")
    (tmp_path / "a.onnx").touch()
    with pytest.raises(PreceptorError, match=r"a\.onnx is a file; name a run's folder, .* \(--out\)$"):
        predict(tmp_path / "a.onnx", ["a.png"])
    train(vector_task(), student="mlp-4", epochs=1, out=tmp_path / "v")
    with pytest.raises(PreceptorError, match="takes vectors of 6 numbers"):
        predict(tmp_path / "v", ["a.png"])
    (tmp_path / "v/model.safetensors").unlink()
    with pytest.raises(PreceptorError, match="the run is not finished"):
        load_run(tmp_path / "v")


def test_truncated_weights_are_told_in_one_sentence(run: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.truncate(500)
    with pytest.raises(PreceptorError, match=r"model\.safetensors cannot be read .*train again"):
        load_run(tmp_path)


def test_a_model_that_may_not_be_read_is_said_to_be_so(run: Path, monkeypatch) -> None:
    def refuse(self, *rest):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PreceptorError, match=r"model.safetensors' cannot be used \(permission denied\)"):
        RunFolder(run).read_model()


@pytest.mark.parametrize("opset", [3, 999])
def test_an_opset_that_cannot_be_written_is_refused(run: Path, tmp_path: Path, opset: int, capfd) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(
        PreceptorError, match=rf"opset {opset} cannot be written .* pass opset=18 \(--opset 18\)"
    ):
        export(run, tmp_path / "a.onnx", opset=opset)
    assert not (tmp_path / "a.onnx").exists()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1}', r"config.json is no run's: it lacks arch, classes, .*; name the folder .* out \(--out\)"),
        ("[]", "config.json holds no JSON object; restore it or train again"),
        ('{"a"', "config.json is not valid JSON .*; restore it or train again"),
    ],
)  # fmt: skip
def test_a_config_that_is_no_runs_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(PreceptorError, match=sentence):
        load_run(tmp_path)


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_a_zoo_reads_what_it_needs_out_of_an_exported_file(run: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("onnxruntime")
    task = toy_task() if kind == "images" else vector_task()
    if kind == "vectors":
        run = tmp_path / "v"
        train(task, student="mlp-4", epochs=1, out=run)
    export(run, tmp_path / "a.onnx")
    zoo = Zoo(tmp_path / "zoo")
    card = zoo.add(f"onnx:{tmp_path / 'a.onnx'}", name="exported")
    assert card.classes == tuple("abcd")
    assert zoo.verify("exported") == []
    teacher = zoo.load("exported")
    logits = teacher.logits(teacher.preprocessing.apply(task.test.load(np.arange(7))))
    shares = split_probabilities(run, task.test)[:7]
    torch.testing.assert_close(logits.softmax(1), torch.from_numpy(shares), rtol=1e-4, atol=1e-5)


def test_a_file_that_cannot_be_written_is_told_before_the_export(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_onnx_bytes", lambda *_: pytest.fail("the export began"))
    (tmp_path / "a.onnx").mkdir()
    with pytest.raises(IsADirectoryError):
        export(run, tmp_path / "a.onnx")
