"""``preceptor rank``: what it prints, what it keeps, how it ends."""

import json
import sys
from importlib.metadata import version

import numpy as np
import pytest
import typer

import preceptor.cli
import preceptor.report
from preceptor.cli.rank import rank
from preceptor.core import Ranking
from preceptor.zoo import Zoo
from tests.rank import teachers


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A zoo of two good teachers and a broken one, and the task as a file."""
    root = tmp_path_factory.mktemp("cli-rank")
    zoo = Zoo(root / "zoo")
    teachers.add(zoo, "same", range(5), root)
    teachers.add(zoo, "random", range(5, 10), root, steps=0, seed=3)
    teachers.add(zoo, "broken", range(5), root, steps=0)
    teachers.truncate_weights(root / "zoo", "broken")
    x, y = teachers.digits()
    mine = np.flatnonzero(y[:900] < 5)
    np.savez(
        root / "digits.npz",
        train_x=x[mine[:300]],
        train_y=y[mine[:300]],
        test_x=x[mine[300:]],
        test_y=y[mine[300:]],
        classes=np.array(teachers.NAMES[:5]),
    )
    return str(root / "zoo"), str(root / "digits.npz")


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Runs the command as a shell would: exit status, standard output, standard error."""
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("rank")(rank)
    monkeypatch.setattr(preceptor.cli, "app", app)
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["preceptor", "rank", *arguments])
        try:
            preceptor.cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run


def test_a_plain_table_in_a_pipe_with_reasons_at_the_end(folders, call):
    status, out, _ = call(*folders, "--metric", "sinkhorn", "-m", "leep")
    assert status == 0
    lines = [line for line in out.splitlines() if "│" in line]
    assert [line.split("│")[2].strip() for line in lines] == ["same", "random", "broken"]
    assert "\x1b" not in out
    assert "1 of 3 teachers has no rank; the remarks say why" in out
    assert "not the file that was added" in " ".join(out.split())


def test_json_is_the_ranking_and_nothing_else(folders, call):
    status, out, _ = call(*folders, "--metric", "all", "--json")
    assert status == 0
    ranking = Ranking.from_json(out)
    assert ranking.best.endswith("zoo/same")
    assert ranking.metric == next(iter(ranking.rows[0].scores))
    assert ranking.rows[-1].name == "broken"


def test_out_keeps_the_ranking(folders, call, tmp_path):
    status, _, _ = call(*folders, "--out", str(tmp_path / "kept" / "here"))
    assert status == 0
    kept = Ranking.from_json((tmp_path / "kept" / "here" / "ranking.json").read_text())
    assert kept.rows[0].name == "same"


def test_the_report_shows_samples_of_the_classes(folders, call, tmp_path, monkeypatch):
    monkeypatch.setattr(
        preceptor.report, "write_report", lambda ranking, path, *, task: seen.append(task.classes)
    )
    seen = []
    status, _, _ = call(*folders, "--report", str(tmp_path / "r.html"))
    assert (status, seen) == (0, [tuple(teachers.NAMES[:5])])


@pytest.mark.parametrize("of_a_run", ["pipeline.json", "config.json", "demo.json"])
def test_no_ranking_is_put_into_the_folder_of_a_run(folders, call, tmp_path, of_a_run):
    (tmp_path / of_a_run).write_text("{}")
    status, _, err = call(*folders, "--out", str(tmp_path))
    assert status == 1
    assert (
        "holds a run, which would seem to have begun with this ranking; name another folder for --out" in err
    )
    assert not (tmp_path / "ranking.json").exists()


def test_top_shows_the_first_and_those_without_a_rank(folders, call):
    _, out, _ = call(*folders, "--top", "1")
    assert "same" in out
    assert "random" not in out
    assert "broken" in out


def test_sample_says_how_sure_it_is(folders, call):
    _, out, _ = call(*folders, "--sample", "100")
    assert "same is really first with a chance of" in out


def test_classes_and_window_take_a_subset(folders, call):
    _, out, _ = call(*folders, "--classes", "one,three", "--json")
    assert json.loads(out)["task"]["classes"] == ["one", "three"]
    _, out, _ = call(*folders, "--window", "1:3", "--json")
    assert json.loads(out)["task"]["classes"] == ["one", "two", "three"]


def test_a_memory_limit_and_a_timeout_are_heard(folders, call):
    status, out, err = call(*folders, "--memory-limit", "10k", "--json")
    assert status == 1
    assert "above the limit of 10.0 KB" in json.loads(out)["rows"][0]["reasons"]["teacher"]
    assert err.startswith("preceptor: no teacher could be ranked by bridge")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--metric", "sinkorn"], 1, "did you mean 'sinkhorn'"),
        (["--engine", "spark"], 1, "no engine 'spark'; there are local and ray"),
        (["--sample", "0"], 2, "--sample"),
        (["--nonsense"], 2, "--nonsense"),
    ],
)
def test_mistakes_end_with_their_status_and_one_line(folders, call, arguments, status, message):
    found, out, err = call(*folders, *arguments)
    assert found == status
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_a_zoo_or_data_that_is_not_there(folders, call, tmp_path):
    for arguments in ((str(tmp_path / "nowhere"), folders[1]), (folders[0], str(tmp_path / "nothing.npz"))):
        status, _, err = call(*arguments)
        assert status == 1
        assert err.startswith("preceptor: ")
        assert len(err.strip().splitlines()) == 1


def test_the_table_fills_on_a_terminal(folders, call, monkeypatch):
    shown = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "rich.live.Live.update", lambda self, table, **_: shown.append((table.title, table.row_count))
    )
    status, _, _ = call(*folders)
    assert status == 0
    assert shown == [("1 of 3 teachers", 1), ("2 of 3 teachers", 2), ("3 of 3 teachers", 3)]


def test_a_pipe_gets_names_and_remarks_in_one_piece(folders, call):
    status, out, _ = call(*folders, "--metric", "all")
    assert status == 0
    reason = "broken/weights.safetensors is not the file that was added (its sum differs)"
    assert any("broken" in line.split("│")[2] and reason in line for line in out.splitlines() if "│" in line)


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_what_cannot_be_written_is_told_before_the_ranking(folders, call, tmp_path, monkeypatch, option):
    monkeypatch.setattr("preceptor.rank.ranking.Driver", lambda *_: pytest.fail("the ranking began"))
    (tmp_path / "file").touch()
    status, out, err = call(*folders, option, str(tmp_path / "file" / "r.html"))
    assert (status, out) == (1, "")
    assert "a file stands where a folder is needed" in err


def test_the_evidence_has_the_version_of_the_code(folders, call):
    _, out, _ = call(*folders, "--json")
    evidence = json.loads(out)["evidence"]
    assert evidence["code"].split("+")[0] == evidence["versions"]["preceptor"] == version("preceptor")


def test_folders_that_are_no_classes_are_told(folders, call, tmp_path):
    from PIL import Image

    for number, place in enumerate(("animal/cat", "animal/dog", "plant/oak", "plant/elm") * 4):
        (tmp_path / "nest" / place).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "nest" / place / f"{number}.png")
    _, _, err = call(folders[0], str(tmp_path / "nest"))
    assert "images in folders of class 'animal' ('cat', 'dog') count as 'animal'" in err
