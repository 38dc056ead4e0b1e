"""``vflsim delays``: what it prints, the snippets that load, the figures."""

import re
import sys
import textwrap

import numpy as np
import pytest
from thorough import in_turn

from vflsim.cli import main
from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.resolve import party_timings
from vflsim.streams import Uniforms
from vflsim.timing.delays import Gamma, Sum
from vflsim.timing.measured import fitting

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 4, by: columns}
models:
  client: {kind: linear, embedding: 6}
  aggregate: mean
  server: {kind: mlp, hidden: [8]}
training:
  batch: 20
  client_optimizer: {kind: sgd, lr: 0.2}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  clients:
    - select: all
      SNIPPET
protocols:
  wait: {kind: synchronous}
stop: {rounds: 10}
seeds: [0]
"""


@pytest.fixture
def vflsim(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["vflsim", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def with_delay(snippet):
    return load(SCENARIO.replace("SNIPPET", textwrap.indent(snippet, "      ").lstrip()))


def test_show_prints_what_is_known_and_draws_it(vflsim, tmp_path):
    out = tmp_path / "law.png"
    code, said, _ = vflsim("delays", "show", "{kind: sum, parts: [1 s, {kind: exponential, mean: 2 s}]}", "--out", out)
    assert code == 0
    for line in ("mean 3 s", "variance 4 s²", "50 % 2.38629 s", "99.9 % 14.8155 s"):
        assert line in " ".join(said.split())
    assert "exp(1/2 - x/2)" in said
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("law", "formula"), [("1e300", "x < 1.0e+300"), ("1e-300", "x < 1.0e-300")])
def test_a_formula_has_no_numbers_of_hundreds_of_digits(vflsim, tmp_path, law, formula):
    assert f"P(delay ≤ x) = Piecewise((0, {formula}), (1, True))" in vflsim("delays", "show", law, "--out", tmp_path)[1]


@pytest.mark.slow
def test_the_same_seed_draws_the_same_figure(vflsim, tmp_path):
    pictures = []
    for seed in (1, 1, 2):
        out = tmp_path / f"{len(pictures)}.png"
        assert (
            vflsim(
                "delays", "show", "{kind: gamma, shape: 2, mean: 1}", "--seed", seed, "--samples", 500, "--out", out
            )[0]
            == 0
        )
        pictures.append(out.read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "law", ["5 ms", "0", "{kind: pareto, shape: 1.2, minimum: 1}", "{kind: gamma, shape: 0.2, mean: 1}"]
)
def test_any_law_can_be_drawn(vflsim, tmp_path, law):
    assert vflsim("delays", "show", law, "--samples", 300, "--out", tmp_path / "a.png")[0] == 0


def test_a_sum_too_large_to_be_computed_is_one_message(vflsim, tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random(2_000))
    part = f"{{kind: empirical, file: {tmp_path / 'a.npy'}}}"
    code, _, error = vflsim("delays", "show", f"{{kind: sum, parts: [{part}, {part}]}}", "--out", tmp_path / "a.png")
    assert code == 2
    assert "too large for its exact distribution" in error
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("law", "says"),
    [
        ("{kind: exponental, mean: 1}", "did you mean 'exponential'"),
        ("{kind: sum, parts: [1, {kind: exponential, meen: 1}]}", "parts.1.meen"),
        ("{kind: exponential, mean: -1}", "above 0"),
        ("{kind: ", "vflsim delays show"),
        ("[1, 2]", "allowed"),
    ],
)
def test_what_is_no_delay_is_one_message(vflsim, tmp_path, law, says):
    code, _, error = vflsim("delays", "show", law, "--out", tmp_path / "a.png")
    assert code == 2
    assert error.startswith("error: ")
    assert says in error
    assert not (tmp_path / "a.png").exists()


@pytest.mark.slow
def test_fit_ranks_families_and_prints_snippets_that_load(vflsim, tmp_path):
    true = Gamma(shape=4, mean=0.02)
    np.savetxt(tmp_path / "delays.txt", 1000 * true.sample(Uniforms(0, 1, "fit").blocks(0, 40)))
    code, said, _ = vflsim("delays", "fit", tmp_path / "delays.txt", "--unit", "ms", "--out", tmp_path / "figures")
    assert code == 0
    assert "2,560 observations" in said
    assert said.index("gamma") < said.index("uniform")
    assert "199 samples of each fitted law" in " ".join(said.split())
    best, observed = re.findall(r"^upload_delay:.*(?:\n  .*)*", said, re.MULTILINE)
    laws = [party_timings(with_delay(snippet))[2].upload_delay for snippet in (best, observed)]
    assert [law.kind for law in laws] == ["gamma", "empirical"]
    assert laws[0].shape == pytest.approx(4, rel=0.1)
    assert laws[1].expectation() == pytest.approx(0.02, rel=0.05)
    assert (tmp_path / "figures" / "delays-fit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unrendered")
def test_fit_says_that_no_law_fits_and_where(vflsim, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLES", 100)
    random = np.random.default_rng(0)
    delays = np.where(random.random(500) < 0.95, random.lognormal(-3, 0.3, 500), random.uniform(5, 11, 500))
    (tmp_path / "a.csv").write_text("when;delay\n" + "".join(f"{k};{value:.6f}\n" for k, value in enumerate(delays)))
    code, said, _ = vflsim("delays", "fit", tmp_path / "a.csv", "--column", "delay", "--out", tmp_path)
    assert code == 0
    words = " ".join(said.split())
    assert "A law is rejected unless p > 0.01" in words
    assert "None of these laws fits" in words
    assert "hyper_exponential, the first in rank, is rejected: it misses the lower tail (at 1 %) most" in words
    assert f"99 % {np.quantile(delays, 0.99, method='inverted_cdf'):.6g} s" in words
    (snippet,) = re.findall(r"^upload_delay:.*(?:\n  .*)*", said, re.MULTILINE)
    assert party_timings(with_delay(snippet))[2].upload_delay.kind == "empirical"


@pytest.mark.slow
def test_the_snippet_of_a_fit_has_digits_that_matter_and_no_more(vflsim, tmp_path):
    np.savetxt(tmp_path / "a.txt", Gamma(shape=4, mean=0.02).sample(Uniforms(0, 1, "fit").blocks(0, 40)))
    _, said, _ = vflsim("delays", "fit", tmp_path / "a.txt", "--out", tmp_path)
    (best,) = re.findall(r"^upload_delay: \{kind: gamma.*", said, re.MULTILINE)
    numbers = re.findall(r"\d+\.\d+", best)
    assert numbers
    assert all(len(number.replace(".", "").lstrip("0")) <= 6 for number in numbers)


@pytest.mark.slow
def test_figures_go_to_the_results_unless_told_otherwise(vflsim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("a.txt", [1.0, 2.0, 4.0])
    assert vflsim("delays", "fit", "a.txt")[0] == 0
    assert vflsim("delays", "show", "{kind: gamma, shape: 2, mean: 1 s}", "--samples", 300)[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "results"}
    names = {path.name for path in (tmp_path / "results" / "delay-figures").iterdir()}
    assert names == {"a-fit.png", "kind-gamma-shape-2-mean-1-s.png"}


@pytest.mark.slow
@in_turn(
    out=["x.png", "deep/x.PNG", "folder", "x.pdf", "x.JPG"],
    command=["fit", "show"],
)
def test_out_is_a_png_or_a_folder(vflsim, tmp_path, monkeypatch, command, out):
    makes = {"folder": None, "x.JPG": ""}.get(out, out)
    monkeypatch.chdir(tmp_path)
    np.savetxt("a.txt", [1.0, 2.0, 4.0])
    what, name = ("a.txt", "a-fit.png") if command == "fit" else ("1 s", "1-s.png")
    code, _, error = vflsim("delays", command, what, "--out", out)
    if makes == "":
        assert code == 2
        assert "a file that ends in .png, .svg, .pdf, or a folder" in error
        assert not (tmp_path / out).exists()
    else:
        assert (
            (tmp_path / (makes or f"{out}/{name}")).read_bytes().startswith(b"%PDF" if makes == "x.pdf" else b"\x89PNG")
        )


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (None, (), "No such file"),
        ("1\n", (), "at least 2"),
        ("1\n-1\n", (), "-1 at value 2"),
        ("1\n2\n", ("--unit", "parsec"), "no unit 'parsec'"),
    ],
)
def test_what_cannot_be_fitted_is_one_message(vflsim, tmp_path, content, options, says):
    if content is not None:
        (tmp_path / "a.txt").write_text(content)
    code, _, error = vflsim("delays", "fit", tmp_path / "a.txt", *options, "--out", tmp_path)
    assert code == 2
    assert says in error


@pytest.mark.usefixtures("unrendered")
def test_equal_observations_are_a_constant(vflsim, tmp_path):
    (tmp_path / "a.txt").write_text("2\n2\n2\n")
    code, said, _ = vflsim("delays", "fit", tmp_path / "a.txt", "--out", tmp_path)
    assert code == 0
    assert "that is a constant delay" in said


def test_scenarios_take_delays_of_delays_with_formulas(tmp_path):
    mixture = "{kind: mixture, weights: [9, i], parts: [i ms, {kind: exponential, mean: 2 + 4*i/N}]}"
    snippet = f"upload_delay: {{kind: sum, parts: [5 ms, {mixture}]}}"
    timings = party_timings(with_delay(snippet))
    third = timings[3].upload_delay
    assert isinstance(third, Sum)
    assert third.parts[1].weights == (9, 3)
    assert third.parts[1].parts[0].value == 0.003
    assert third.parts[1].parts[1].mean == 5


def test_a_typing_error_deep_inside_is_found(tmp_path):
    snippet = "upload_delay: {kind: maximum, parts: [1, {kind: sum, parts: [{kind: paretto, shape: 2, minimum: 1}]}]}"
    with pytest.raises(ScenarioError, match=r"parts\.1\.parts\.0\.kind: there is no kind 'paretto'[\s\S]*'pareto'"):
        with_delay(snippet)


def test_an_observed_file_that_is_missing_is_a_scenario_error():
    with pytest.raises(ScenarioError, match="No such file"):
        with_delay("upload_delay: {kind: empirical, file: /nowhere/delays.csv}")
