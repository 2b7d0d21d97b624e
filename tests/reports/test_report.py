"""The report: what it reads, what it writes, that it harms nobody, and that it stays small."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from support.records import HOSTILE, made_cells, made_domains, made_record, made_records, made_run

from pdeplus import Run
from pdeplus._lib.pages import to_script
from pdeplus.errors import UserError
from pdeplus.evaluation.records import append_records
from pdeplus.reports import page
from pdeplus.reports.figures import resolve
from pdeplus.reports.inputs import Material, gather
from pdeplus.reports.page import compose, report, write_files


class Page(HTMLParser):
    """The elements and the text of a page, scripts and styles apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        (self.scripts if self.tags and self.tags[-1][0] == "script" else self.texts).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_public_name_is_the_function():
    code = "import pdeplus.reports, pdeplus as pp; from pdeplus.reports.tables import Table; print(pp.report.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "report"


def test_a_page_from_everything_mixed(tmp_path):
    folder = made_run(tmp_path / "run", made_cells("PDE+", 0.7))
    (tmp_path / "more.jsonl").touch()
    append_records(tmp_path / "more.jsonl", made_cells("AugMix", 0.5))
    items = [*made_cells("ERM", 0.2), Run.load(folder), str(folder), tmp_path / "more.jsonl"]
    out = report(items, tmp_path / "new" / "report.html", title="My title")
    assert out == tmp_path / "new" / "report.html"
    found = Page(out.read_text("utf-8"))
    text = " ".join(found.texts)
    assert text.count("My title") == 2  # title and heading
    assert "On digits, PDE+ has the best mean accuracy under corruption" in text
    sections = [attributes["id"] for attributes in found.all("section")]
    before, after = (
        ["verdict", "summary", "corruptions", "severity", "calibration"],
        ["protocol", "environment", "repeat"],
    )
    assert sections == [*before, "training", "samples", *after]
    assert "pdeplus evaluate runs/PDE+-seed0" in text
    assert "pdeplus train <demo>" in text
    assert len([a for a in found.all("img") if a.get("alt")]) == 12
    assert "✗ predicted 1, 83 %" in text
    assert found.all("html")[0]["lang"] == "en"
    assert out.stat().st_size < 3e6
    assert not list(tmp_path.glob("new/*.tmp"))


def test_headings_are_in_order(tmp_path):
    out = report([*made_records(seeds=1), *made_domains()], tmp_path / "r.html")
    levels = [int(tag[1]) for tag, _ in Page(out.read_text("utf-8")).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_one_item_alone_and_one_record(tmp_path):
    records = made_cells("ERM", 0.5)
    folder = made_run(tmp_path / "run", records)
    assert gather(folder).records == gather(Run(folder)).records == gather([folder, folder]).records == tuple(records)
    assert report(records[0], tmp_path / "r.html").is_file()
    assert report(made_domains(), tmp_path / "d.html").is_file()


def test_clean_records_alone(tmp_path):
    records = [made_record(name, ("clean", 0), 0.9, suite="clean") for name in ("ERM", "PDE+")]
    found = Page(report(records, tmp_path / "r.html").read_text("utf-8"))
    assert [a["id"] for a in found.all("table")] == ["g1-summary", "g1-costs", "machines"]
    assert "g1-reliability" in [a.get("id") for a in found.all("div")]


def test_what_cannot_be_read_is_answered(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        report(tmp_path / "nothing")
    with pytest.raises(UserError, match="no records to report"):
        report([])
    folder = made_run(tmp_path / "run", made_cells("ERM", 0.5))
    (folder / "samples.json").write_text('{"images": [{"png": "AAAA"}]}')
    with pytest.raises(UserError, match="samples.json is damaged"):
        report(folder)
    (folder / "samples.json").write_text("{")
    with pytest.raises(UserError, match="samples.json is damaged"):
        report(folder)
    (folder / "records.jsonl").unlink()
    with pytest.raises(UserError, match="run has no records yet; write them with: pdeplus evaluate"):
        report(folder)
    (folder / "config.toml").unlink()
    with pytest.raises(UserError, match="not a run folder"):
        report(folder)


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "r.html").mkdir()
    with pytest.raises(UserError, match="r.html is a folder; give --out"):
        report(made_cells("ERM", 0.5), tmp_path / "r.html")
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match="cannot be created"):
        report(made_cells("ERM", 0.5), tmp_path / "file" / "r.html")
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("what", ["page", "figure"])
def test_without_the_extra_the_report_says_what_to_install(tmp_path, monkeypatch, what):
    book = compose(Material(tuple(made_cells("ERM", 0.5)), ()), "ERM")
    page._bundle.cache_clear()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"needs vl_convert: pip install 'pdeplus\[plots\]'$"):
        page.page_text(book, "title") if what == "page" else write_files(book, tmp_path)


def test_files_are_what_they_claim(tmp_path):
    records = [r for samples in (0, 5) for r in made_cells("PDE+", 0.7, samples=samples)] + made_cells("ERM", 0.3)
    report(records, tmp_path / "r.html", files=tmp_path / "files")
    begins = {
        "png": b"\x89PNG\r\n",
        "pdf": b"%PDF-",
        "svg": b"<svg",
        "md": b"**",
        "csv": b"series,",
        "tex": b"\\begin{table}",
    }
    found = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert {"g1-heat.png", "g1-difference.pdf", "g1-severity.svg", "g1-summary.md", "g1-passes-ece.png"} <= set(found)
    for path in (tmp_path / "files").iterdir():
        assert path.read_bytes().startswith(begins[path.suffix[1:]]), path.name
    for stem in {path.stem for path in (tmp_path / "files").glob("*.png")}:
        assert {f"{stem}.svg", f"{stem}.pdf"} <= set(found)


def test_hostile_names_in_figures_stay_text(tmp_path):
    report(made_records([*HOSTILE, "ERM"], seeds=1), tmp_path / "r.html", files=tmp_path / "files")
    for path in (tmp_path / "files").glob("*.svg"):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
        drawn = {"svg", "g", "path", "rect", "line", "text", "tspan", "defs", "linearGradient", "stop", "clipPath"}
        assert tags <= drawn


def test_static_difference_is_the_difference_of_the_heat_maps():
    book = compose(Material(tuple(made_records(["ERM", "PDE+"], seeds=2)), ()), "ERM")
    figures = book.chapters[0].figures
    heat = {row["series"]: {} for row in figures["heat"].rows}
    for row in figures["heat"].rows:
        heat[row["series"]][row["corruption"], row["severity"]] = row["value"]
    spec = resolve(figures["difference"], book.menus)
    assert len(spec["data"]["values"]) == 75
    for row in spec["data"]["values"]:
        place = row["corruption"], row["severity"]
        assert row["value"] == pytest.approx(heat["PDE+"][place] - heat["ERM"][place], abs=1e-6)
    assert spec["params"][0]["value"] == max(abs(row["value"]) for row in spec["data"]["values"])


def test_scripts_hold_data_only():
    text = to_script(["</script><!--", "a & b", "\u2028\u2029", "ü"])
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == ["</script><!--", "a & b", "\u2028\u2029", "ü"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(tmp_path, name):
    harmless = Page(report(made_cells("x", 0.5), tmp_path / "a.html").read_text("utf-8"))
    more = {"machine": name, "command": name, "origin": name, "data": name, "config": "c"}
    out = report(made_cells(name, 0.5, **more), tmp_path / "b.html", title=name)
    found = Page(out.read_text("utf-8"))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
    assert not any(key.startswith("on") for _, attributes in found.tags for key in attributes)
    assert name in "".join(found.texts)


def test_hostile_samples_stay_text(tmp_path):
    folder = made_run(tmp_path / "run", made_cells("ERM", 0.5))
    images = json.loads((folder / "samples.json").read_text())["images"]
    names = {"corruption": HOSTILE[2], "label": HOSTILE[0], "prediction": HOSTILE[1]}
    (folder / "samples.json").write_text(json.dumps({"images": [image | names for image in images]}))
    found = Page(report(folder, tmp_path / "r.html").read_text("utf-8"))
    assert len(found.all("script")) == 3
    assert found.all("img")[0]["alt"] == f"Test image 0, {HOSTILE[2]} 1: {HOSTILE[0]}"
    assert f"✗ predicted {HOSTILE[1]}, 83 %" in found.texts


def test_several_passes_on_domains_leave_the_domains_their_figure():
    records = made_domains() + made_domains(["PDE+"], samples=5)
    (chapter,) = compose(Material(tuple(records), ()), "ERM").chapters
    assert set(chapter.figures) == {"domains", "reliability", "cost", "passes-domains", "passes-ece"}
    assert len({figure.name for figure in chapter.figures.values()}) == 5


def test_nothing_is_fetched(tmp_path):
    found = Page(report(made_records(seeds=1), tmp_path / "r.html").read_text("utf-8"))
    assert not found.all("link")
    assert not any("src" in attributes for attributes in found.all("script"))
    assert all(str(attributes["href"]).startswith(("#", "data:")) for attributes in found.all("a"))
    (policy,) = [a["content"] for a in found.all("meta") if a.get("http-equiv")]
    assert "default-src 'none'" in str(policy)
    assert "http" not in str(policy)


def test_two_reports_of_the_same_records_are_equal(tmp_path):
    records = made_records(seeds=2)
    first, second = (report(records, tmp_path / f"{i}.html").read_bytes() for i in range(2))
    assert first == second


@pytest.mark.parametrize("series", [20, 100])
def test_the_page_of_a_hundred_runs_stays_small(tmp_path, series):
    records = made_records([f"method {i}" for i in range(series - 1)] + ["ERM"], seeds=100 // series, n=1000)
    assert len(records) == 7600
    out = report(records, tmp_path / "r.html")
    assert out.stat().st_size < 3e6
    found = Page(out.read_text("utf-8"))
    boxes = [a for a in found.all("input") if "checked" in a]
    assert 0 < len(boxes) <= 4 * 8  # a chart starts with no more lines than there are colours
