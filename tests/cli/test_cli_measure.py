"""Policies through the command line: rounds over a whole sweep, peers beside it, warnings."""

from __future__ import annotations

import pytest

from command_line import DOUBLE, Project

STEADY = (
    "measure=standard",
    "measure.bound=0.9",
    "measure.span_s=0",
    "measure.samples=3",
    "measure.min_sample_us=50",
)
TOLD = """\
#include <stdio.h>
static int told;
"""
TELL = """\
if (!told++) {{ FILE *file = fopen("{path}", "a"); fputs("{name}\\n", file); fclose(file); }}
    """


def test_every_round_measures_all_variants_in_fresh_processes_and_in_changing_order(
    project: Project,
) -> None:
    log = project.folder / "order.txt"
    names = ["one", "two", "three"]
    for name in names:
        project.add(name, TELL.format(path=log, name=name) + DOUBLE, head=TOLD)
    words = ("measure.min_rounds=6", "measure.max_rounds=6")
    done = project.json("run", "-m", f"workload={','.join(names)}", *STEADY, *words)
    assert done.code == 0
    assert [trial["workload"] for trial in done.trials] == names
    assert {trial["metrics"]["processes"] for trial in done.trials} == {6}
    told = log.read_text().split()
    # One process of each to verify, then six to measure; the first round comes with verifying.
    rounds = told[6:]
    orders = {tuple(rounds[i : i + 3]) for i in range(0, len(rounds), 3)}
    assert all(sorted(order) == sorted(names) for order in orders)
    assert len(orders) > 1


def test_what_a_sweep_has_finished_is_stored_even_if_it_is_one_of_many(project: Project) -> None:
    project.add("good")
    words = ("workload=good", "workload.sizes.n=100,200,300", *STEADY, "measure.together=2")
    first = project.json("run", "-m", *words)
    again = project.json("run", "-m", *words)
    assert [trial["status"] for trial in first.trials] == ["ok"] * 3
    assert all(trial["reused"] for trial in again.trials)


def test_peers_are_ratios_with_intervals_and_never_rows(project: Project) -> None:
    done = project.json("run", "workload=axpy", *STEADY, "measure.peers=[numpy,openblas,plain_c]")
    assert done.code == 0
    ratios = done.trial["metrics"]["peers"]
    assert set(ratios) == {"numpy", "openblas", "plain_c"}
    for found in ratios.values():
        assert 0 < found["ci_low"] <= found["ratio"] <= found["ci_high"]
        assert found["median_ns"] > 0
    names = [artifact["name"] for artifact in done.trial["artifacts"]]
    assert {"plain_c/axpy.add", "openblas/axpy.add"} <= set(names)


def test_the_variants_of_a_sweep_share_their_peer(project: Project) -> None:
    done = project.json(
        "run",
        "-m",
        "workload=axpy",
        "select.fixed.unroll.vectors=1,2",
        *STEADY,
        "measure.peers=[plain_c]",
    )
    times = {trial["metrics"]["peers"]["plain_c"]["median_ns"] for trial in done.trials}
    assert len(times) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["measure.peers=[openblass]"], "unknown peer 'openblass'"),
        (["workload=softmax", "measure.peers=[openblas]"], "cannot compute workload 'softmax'"),
        (["workload=good", "measure.peers=[plain_c]"], "kernel 'good' has no source 'plain'"),
        (["measure.scheduling=idle"], "measure.scheduling"),
        (["measure.cache=tepid"], "measure.cache"),
        (["measure.together=0"], "measure.together"),
        (["measure.floor=-1"], "measure.floor"),
    ],
)
def test_what_a_policy_cannot_ask_for_is_named(
    project: Project, words: list[str], said: str
) -> None:
    project.add("good")
    done = project.run("run", *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_peer_that_fails_leaves_a_warning_and_our_own_result(project: Project) -> None:
    project.add(
        "good",
        kernel="""\
name: good
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {file: good.c, function: good}
  plain: {file: bad.c, function: good}
""",
    )
    project.write("templates/bad.c", "void good(long n, const float *x, float *y) { y[0] = x[0]; }")
    done = project.json("run", "workload=good", "measure.peers=[plain_c]")
    assert done.code == 0
    assert "peers" not in done.trial["metrics"]
    assert "no ratio to plain_c" in " ".join(done.trial["warnings"])


def test_a_budget_too_short_for_the_rounds_is_unconverged_and_says_why(
    project: Project,
) -> None:
    done = project.json("run", "workload=axpy", "measure=standard", "measure.budget_s=0")
    assert done.trial["status"] == "unconverged"
    assert "the budget of 0 s ended after 1 of at least 8 rounds" in done.trial["message"]


def test_the_conditions_say_what_was_really_had(project: Project) -> None:
    done = project.json(
        "run",
        "workload=axpy",
        "measure.cache=cold",
        "measure.aslr=false",
        "measure.scheduling=fifo",
    )
    conditions = done.trial["conditions"]
    assert conditions["clock"] == "cpu"
    assert conditions["cache"] == "cold"
    assert conditions["scheduling"] in ("fifo", "normal")
    assert done.trial["metrics"]["inner"] == 1
    threads = project.json("run", "workload=axpy", "select.fixed.parallelize.threads=2")
    if threads.code == 0:
        assert threads.trial["conditions"]["clock"] == "wall"


def test_a_wrong_peer_gives_no_ratio_even_where_it_works_in_place(project: Project) -> None:
    lazy = "{% import 'kernels/lib/entry.j2' as lib %}\nvoid {{ function }}(long n, {{ ctype }} a, "
    lazy += "const {{ ctype }} *x, {{ ctype }} *y) { (void)n; (void)a; (void)x; (void)y; }\n"
    project.write("templates/kernels/axpy/plain.c.j2", lazy)
    done = project.json("run", "workload=axpy", "measure.peers=[plain_c]")
    assert done.trial["status"] == "ok"
    assert "peers" not in done.trial["metrics"]
    assert "no ratio to plain_c" in " ".join(done.trial["warnings"])


def test_what_did_not_converge_is_repeated_with_the_failed(project: Project) -> None:
    words = ("workload=axpy", "measure=standard", "measure.budget_s=0", "seed=7")
    assert project.json("run", *words).trial["reused"] is False
    assert project.json("run", *words).trial["reused"] is True
    assert project.json("run", *words, "rerun=failed").trial["reused"] is False


def test_one_session_at_a_time_is_enough_for_peers(project: Project) -> None:
    done = project.json(
        "run", "workload=axpy", *STEADY, "target.sessions=1", "measure.peers=[plain_c]"
    )
    assert set(done.trial["metrics"]["peers"]) == {"plain_c"}


def test_a_result_that_cannot_be_true_is_suspicious_and_never_ranks(project: Project) -> None:
    costs = "workload.cost.flops=2*N,10**9*N"
    done = project.json("run", "-m", "workload=axpy", costs)
    honest, absurd = done.trials
    assert (done.code, honest["status"], absurd["status"]) == (1, "ok", "suspicious")
    assert absurd["verified"] and absurd["stage"] == "timing"
    assert "and one core gives at most 2,048 GFLOP/s" in absurd["message"]
    shown = project.run("results", "status=suspicious").stdout
    assert "1 trial" in shown and "suspicious" in shown
    again = project.json("run", "workload=axpy", "workload.cost.flops=10**9*N")
    assert (again.trial["status"], again.trial["reused"]) == ("suspicious", False)
