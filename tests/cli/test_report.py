"""``preceptor report``: where the page lies."""

from pathlib import Path

import pytest

from preceptor.cli.report import report
from preceptor.core import Ranking, RankingRow
from preceptor.distill.train import train
from tests.pipeline.blobs import blobs


@pytest.mark.parametrize(
    ("source", "page"),
    [("", "report.html"), ("ranking.json", "ranking.html"), ("ranking.2.json", "ranking.2.html")],
)
def test_the_page_of_a_file_spares_the_report_of_its_folder(tmp_path: Path, source: str, page: str) -> None:
    ranking = Ranking(
        "sinkhorn", (RankingRow("letters", 1, {"sinkhorn": -0.4}, {}, 0.5),), {"name": "digits"}
    )
    for name in ("ranking.json", "ranking.2.json"):
        (tmp_path / name).write_text(ranking.to_json())
    (tmp_path / "report.html").write_text("the whole run")
    report(tmp_path / source)
    assert "letters" in (tmp_path / page).read_text()
    assert ((tmp_path / "report.html").read_text() == "the whole run") == (page != "report.html")


def test_the_page_of_a_file_never_replaces_the_file(tmp_path: Path) -> None:
    ranking = Ranking(
        "sinkhorn", (RankingRow("letters", 1, {"sinkhorn": -0.4}, {}, 0.5),), {"name": "digits"}
    )
    (tmp_path / "ranking.html").write_text(ranking.to_json())
    report(tmp_path / "ranking.html")
    assert (tmp_path / "ranking.html").read_text() == ranking.to_json()


def test_a_page_without_pictures_says_how_to_get_them(tmp_path: Path, capsys) -> None:
    train(blobs("ab"), student="mlp-8", epochs=1, out=tmp_path, device="cpu", progress=False)
    report(tmp_path)
    told = " ".join(capsys.readouterr().out.split())
    assert "without pictures; --data DATA adds samples and what the student says about them" in told
