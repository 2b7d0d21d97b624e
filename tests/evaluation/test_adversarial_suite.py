"""The adversarial suite: its test sets and records, resuming, noise, refusals, the sanity report, tables and page."""

import json
import shutil
import warnings

import pytest
import torch
from support.runs import digits, pair
from torch import nn

import pdeplus as pp
from pdeplus.attacks.gradient_attacks import FGSM, PGD, attacking
from pdeplus.attacks.sanity import sanity
from pdeplus.cli import parse
from pdeplus.errors import UserError
from pdeplus.evaluation import adversarial, loop
from pdeplus.evaluation.adversarial import build_threat, read_sanity
from pdeplus.evaluation.records import read_records
from pdeplus.evaluation.summary import attack_size, compare, scores, series_of
from pdeplus.reports.inputs import gather
from pdeplus.reports.page import compose
from pdeplus.reports.words import finding

N = 30
FEW = {"data": pair(digits(N))}
TWO = {"epsilons": (0.05, 1 / 255)}


@pytest.fixture(autouse=True)
def _quiet():
    """So few images of so small a network need not pass the sanity checks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "sanity of ")
        warnings.filterwarnings("ignore", ".* no better than chance")
        yield


class Linear(nn.Module):
    """A linear classifier of digits, fitted to them; noise can hang behind its first layer."""

    def __init__(self, classes=10):
        super().__init__()
        self.first, self.flatten, self.last = nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(192, classes)
        images = digits()
        x, y = images.floats().flatten(1), nn.functional.one_hot(images.labels, 10).float()[:, :classes]
        with torch.no_grad():
            self.first.weight.copy_(torch.eye(3).view(3, 3, 1, 1))
            self.first.bias.zero_()
            self.last.weight.copy_(4 * torch.linalg.lstsq(x, y, driver="gelsd").solution.T)
            self.last.bias.zero_()

    def forward(self, x):
        return self.last(self.flatten(self.first(x)))


def test_records_are_what_the_attack_does_to_the_network(tmp_path):
    net, images = Linear().train(), digits(N)
    records = pp.evaluate(net, "adversarial", attack="fgsm", **TWO, **FEW, out=tmp_path)
    assert [r.cell for r in records] == [("clean", 0), ("fgsm linf 1/255", 0), ("fgsm linf 12.75/255", 0)]
    assert {r.suite for r in records} == {"adversarial"}
    assert records == read_records(tmp_path / "records.jsonl")
    for r, epsilon in zip(records, (0, 1 / 255, 0.05), strict=True):
        found = FGSM(epsilon=epsilon)(net, images.floats(), images.labels)  # floats: bytes would hide 1/255's share
        right = net(found).argmax(-1) == images.labels
        assert torch.equal(torch.from_numpy(r.right), right)
        assert r.nll == pytest.approx(float(nn.functional.cross_entropy(net(found), images.labels).detach()), rel=1e-4)
    assert records[0].accuracy > records[2].accuracy
    assert "; fgsm linf, 1 step, seed 0, " in records[0].origin
    assert net.training
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


def test_the_same_call_measures_nothing_again_and_another_attack_anew(erm, tmp_path, monkeypatch):
    first = pp.evaluate(erm, "adversarial", **TWO, limit=N, out=tmp_path)
    report = (tmp_path / "sanity.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_measure_one", None)
        assert pp.evaluate(erm, "adversarial", **TWO, limit=N, out=tmp_path) == first
    assert (tmp_path / "sanity.json").read_bytes() == report
    more = pp.evaluate(erm, "adversarial", epsilons=(0.02,), limit=N, out=tmp_path)
    assert more[0] == first[0]  # clean images are the same
    for changed in ({"attack": PGD(steps=3)}, {"seed": 1}, {"attack": PGD(norm="l2")}, {"attack": PGD(restarts=2)}):
        other = pp.evaluate(erm, "adversarial", **TWO, limit=N, **changed, out=tmp_path)
        assert other[0].origin != first[0].origin
    assert len(read_sanity(tmp_path)) == 5
    again = pp.evaluate(erm, "adversarial", **TWO, limit=N, batch_size=7, out=tmp_path / "again")
    assert [r.hits for r in again] == [r.hits for r in first]
    assert [r.nll for r in again] == pytest.approx([r.nll for r in first], rel=1e-5)


def test_defaults_and_a_configured_attacks_own_size():
    assert build_threat(None, None, None, 0).epsilons == (1 / 255, 2 / 255, 4 / 255, 8 / 255)
    threat = build_threat(PGD(norm="l2", epsilon=0.7, steps=3, restarts=2), None, 5, 4)
    assert (threat.epsilons, threat.name(0.7)) == ((0.7,), "pgd l2 0.7")
    assert "pgd l2, 3 steps, 2 restarts, seed 4, following the mean of 5 noisy passes" in threat.about


def test_an_attack_on_a_noisy_model_averages_over_passes_and_on_the_plain_one_over_none(monkeypatch):
    plain = Linear().eval()
    noisy = pp.add_diffusion(plain, ["first"], torch.rand(2, 3, 8, 8), initial_scale=0.02)
    seen = []
    original = adversarial.expected_logits

    def watched(net, x, passes, **more):
        seen.append(passes)
        return original(net, x, passes, **more)

    monkeypatch.setattr(adversarial, "expected_logits", watched)
    options = {"attack": PGD(steps=2), **TWO, **FEW}
    records = pp.evaluate(noisy, "adversarial", samples=3, eot=4, **options)
    assert set(seen) == {4, 0}  # none in the transfer from the plain network
    assert "EoT 4" in records[0].origin
    assert records[0].samples == 3
    seen.clear()
    pp.evaluate(noisy, "adversarial", samples=3, **options)
    assert set(seen) == {10, 0}
    seen.clear()
    both = [pp.evaluate(model, "adversarial", **options, name="same") for model in (noisy, plain)]
    assert not seen  # without samples there is no noise to average
    assert [r.hits for r in both[0]] == [r.hits for r in both[1]]
    assert both[0][0].origin == both[1][0].origin


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attack": "cw"}, "attack='cw' is not known; choose from fgsm, pgd, apgd_ce, apgd_dlr"),
        ({"epsilons": ()}, "epsilons=.* must be at least one number above 0, such as 8/255"),
        ({"epsilons": (0.1, -1.0)}, "epsilons=.* must be at least one number above 0"),
        ({"eot": -1}, "eot=-1 must be 0 .* or more"),
        ({"suite": "clean", "attack": "pgd"}, "attack='pgd' is for suite='adversarial'; the suite is 'clean'"),
        ({"suite": "corruptions", "eot": 3}, "eot=3 is for suite='adversarial'"),
        ({"files": "somewhere"}, "files='somewhere' is for corruptions"),
    ],
)
def test_what_cannot_be_attacked_so_is_refused_in_one_line(options, message):
    suite = options.pop("suite", "adversarial")
    with pytest.raises(UserError, match=message):
        pp.evaluate(Linear(), suite, **options, **FEW)


def test_models_without_gradients_are_refused_before_anything_is_measured(tmp_path):
    net = Linear()
    for model in (torch.no_grad()(net.forward), lambda x: net(x).detach()):
        with pytest.raises(UserError, match="this model gives none; attack the torch network itself: no .onnx file"):
            pp.evaluate(model, "adversarial", **FEW, out=tmp_path)
    assert not (tmp_path / "records.jsonl").exists()
    assert len(pp.evaluate(lambda x: net(x).softmax(-1), "adversarial", outputs="probabilities", **TWO, **FEW)) == 3
    two = digits(N).images, torch.zeros(N, dtype=torch.long)
    with pytest.raises(UserError, match="the DLR loss needs 3 classes, the model has 2; choose attack='apgd_ce'"):
        pp.evaluate(Linear(classes=2), "adversarial", attack="apgd_dlr", data=two)


def verdicts(net, attack=None, **options):
    images = digits(60)
    attack = attack or PGD(steps=10)
    options = {"epsilons": (0.01, 0.03, 0.1)} | options
    with attacking(net):
        found = sanity(attack, options.pop("logits", net), images.floats(), images.labels, **options)
    return [check.passed for check in found.checks], found


def test_an_honest_network_passes_every_check_that_applies():
    passed, found = verdicts(Linear().eval())
    assert passed == [True, True, True, None, True]
    assert (found.failed, found.images) == ([], 60)
    assert verdicts(Linear().eval(), plain=Linear().eval())[0] == [True] * 5


def test_masked_gradients_are_found_out():
    net = Linear().eval()

    def misled(x):  # gradients that lead the wrong way; what is said is the same
        return net(x).detach() * 2 - net(x)

    passed, found = verdicts(net, logits=lambda x: misled(x), predict=lambda x: net(x).softmax(-1), plain=net)
    assert passed[0] is passed[1] is passed[3] is False
    assert found.failed[0].line.startswith("the loss rises with epsilon: NO (mean ")
    assert "the noise masks the gradients: raise eot" in found.checks[3].line
    assert verdicts(net, PGD(steps=1, step_size=1e-4, epsilon=0.1))[0][2] is False  # far from converged
    assert verdicts(net, PGD(steps=1, step_size=1e-4, epsilon=0.1))[0][4] is False  # one full step beats it


def test_evaluate_warns_of_a_failed_check_and_stores_all(erm, tmp_path):
    weak = PGD(steps=1, step_size=1e-5, epsilon=0.2, random_start=False)
    with pytest.warns(UserWarning, match="^sanity of pgd: one step is no stronger than many: NO .* trust the lower"):
        pp.evaluate(erm, "adversarial", attack=weak, limit=60, out=tmp_path)
    (stored,) = json.loads((tmp_path / "sanity.json").read_text())
    assert [check["passed"] for check in stored["checks"]][-1] is False
    assert (stored["model"], stored["images"], stored["epsilons"]) == ("ERM", 60, [0.2])


def call(folder, *words):
    """What the command line does with these words."""
    options = parse(["evaluate", *words, "--out", str(folder)])
    options.handler(options)


def test_the_command_prints_a_line_of_results_and_the_checks(erm, tmp_path, capsys):
    words = (str(erm.path), "--suite", "adversarial", "--limit", "30", "--norm", "l2", "--steps", "3")
    call(tmp_path, *words, "--epsilon", "0.25", "1/2", "--eot", "2")
    first, *checks = capsys.readouterr().out.splitlines()
    records = read_records(tmp_path / "records.jsonl")
    assert [r.corruption for r in records] == ["clean", "pgd l2 0.25", "pgd l2 0.5"]
    assert first.startswith("ERM (validation), test images of digits, 3×8×8")
    assert "; pgd l2, 3 steps, 1 restart, seed 0, following the mean of 2 noisy passes" in first
    assert f"pgd l2 0.5 {100 * records[2].accuracy:.2f} %" in first
    assert len(checks) == 5
    assert all(line.startswith("  sanity: ") for line in checks)
    with pytest.raises(UserError, match="--attack pgd is for --suite adversarial; the suite is corruptions"):
        call(tmp_path, str(erm.path), "--attack", "pgd")
    with pytest.raises(UserError, match="steps=3: the attack fgsm has no steps"):
        call(tmp_path, *words, "--attack", "fgsm")
    with pytest.raises(UserError, match="'8/0' is not a number such as 0.03 or 8/255"):
        call(tmp_path, "run", "--epsilon", "8/0")


def test_scores_tables_and_page_of_attacks(erm, pde, tmp_path):
    epsilons = (16 / 255, 2 / 255, 4 / 255)
    names = [f"pgd linf {k}/255" for k in (2, 4, 16)]
    for run in (erm, pde):
        shutil.copytree(run.path, tmp_path / run.path.parent.name)
        pp.evaluate(tmp_path / run.path.parent.name, "adversarial", epsilons=epsilons, limit=N, samples=None)
    folders = [tmp_path / run.path.parent.name for run in (erm, pde)]
    series = series_of(gather(folders).records)
    assert [one.attacks for one in series] == [names, names]
    assert [attack_size(name) for name in ("clean", *names)] == pytest.approx([0, 2 / 255, 4 / 255, 16 / 255])
    found, cells = scores(series[0]), {r.corruption: r.accuracy for r in read_records(folders[0] / "records.jsonl")}
    assert found["adversarial"].mean == pytest.approx(sum(cells[name] for name in names) / 3)
    assert found["worst_attack"].mean == min(cells[name] for name in names)
    assert compare(*series) is not None
    book = compose(gather(folders), "ERM")
    (chapter,) = book.chapters
    assert chapter.tables["summary"].columns[1:6] == ("clean", *names, "mean under attack")
    rows = chapter.figures["epsilon"].rows
    assert [row["x"] for row in rows[:4]] == ["0", "2/255", "4/255", "16/255"]
    assert "has the best mean accuracy under attack" in finding(chapter.group)
    page = pp.report(folders, tmp_path / "report.html").read_text()
    assert "Accuracy against the size of the attack" in page


def test_sizes_that_differ_have_names_that_differ():
    threat = build_threat("pgd", (0.00392, 1 / 255, 0.0121, 8 / 255, 0.5), None, 0)
    names = [threat.name(epsilon) for epsilon in threat.epsilons]
    assert names == [f"pgd linf {k}/255" for k in ("0.9996", "1", "3.0855", "8", "127.5")]
    assert [attack_size(name) for name in names] == pytest.approx([*threat.epsilons])


def test_torchs_own_random_state_is_left_alone(erm, tmp_path):
    attack = PGD(restarts=2, steps=3)
    state = torch.get_rng_state()
    both = [pp.evaluate(erm, "adversarial", attack=attack, limit=N, seed=seed, out=tmp_path) for seed in (0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert both[0][1].nll != both[1][1].nll  # another seed begins elsewhere
