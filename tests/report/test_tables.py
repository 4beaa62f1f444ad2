"""What people see: short, whole, and honest about what is left out."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace

import pytest

from kernloom.base.gauges import TIME
from kernloom.base.units import three_digits, time_text
from kernloom.measure.ranking import FAULTS
from kernloom.report.columns import params_text, value_text
from kernloom.report.formats.csv import write_csv
from kernloom.report.page import Heading, Page, print_rows
from kernloom.report.tables import closing_line, fault_notes, print_results, print_run

BUILD = {"built": 2, "cached": 4, "seconds": 1.3}


def shown(trials, build=BUILD) -> str:
    file = io.StringIO()
    print_run(trials, build, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (0.5, "0.500 ns"),
        (532, "532 ns"),
        (999.9, "1.00 µs"),
        (12345, "12.3 µs"),
        (1.5e6, "1.50 ms"),
        (2e9, "2.00 s"),
        (7.2e12, "7,200 s"),
    ],
)
def test_times_have_units_for_people(nanoseconds, text):
    assert time_text(nanoseconds) == text


def test_numbers_have_three_digits():
    texts = [three_digits(value) for value in (0.01234, 1.234, 12.34, 123.4, 99.96, 12345.6)]
    assert texts == ["0.0123", "1.23", "12.3", "123", "100", "12,346"]


def test_a_time_comes_with_its_interval():
    assert (
        TIME.with_interval({"median_ns": 1000, "ci_low_ns": 990, "ci_high_ns": 1010})
        == "1.00 µs ±1.0%"
    )
    assert TIME.with_interval({"median_ns": 1000}) == "1.00 µs"
    assert TIME.with_interval({}) == ""


def test_one_sample_claims_no_interval():
    metrics = {"median_ns": 1000, "ci_low_ns": 1000, "ci_high_ns": 1000, "samples": 1}
    assert TIME.with_interval(metrics) == "1.00 µs"


def test_a_run_shows_parameters_time_rate_and_provider(make_trial):
    header, row, closing = shown([make_trial()]).splitlines()
    assert header.split() == [
        *("workload", "case", "target", "params", "status", "time", "GFLOP/s", "provider"),
    ]
    assert row.split() == [
        *("matmul", "default", "host", "mr=6", "kc=512", "b=true", "ok"),
        *("12.3", "µs", "±0.8%", "88.1", "model"),
    ]
    assert closing == "1 verified, 0 failed; built 2, cached 4 in 1.30 s"


def test_swept_keys_get_columns_by_the_shortest_name_that_is_theirs(make_trial):
    point = {"workload.sizes.M": 64, "target": "host", "a.name": 1, "b.name": 2}
    header = shown([make_trial(point=point)]).splitlines()[0].split()
    assert header[:6] == ["workload", "case", "target", "M", "a.name", "b.name"]


def test_a_swept_parameter_is_shown_once_and_for_every_trial(make_trial):
    trials = [make_trial(point={"select.fixed.tile.mr": 6}), make_trial()]
    header, *rows = shown(trials).splitlines()[:3]
    assert header.split()[3:5] == ["mr", "params"]
    assert [row.split()[3:6] for row in rows] == [["6", "kc=512", "b=true"]] * 2
    one_step = [make_trial(point={"select.fixed.tile.multiply.mr": 6})]
    assert "mr=6" not in shown(one_step)


def test_a_swept_key_is_shown_of_trials_that_did_not_sweep_it(make_trial):
    config = {"workload": {"sizes": {"M": 32}}}
    trials = [make_trial(point={"workload.sizes.M": 64}), make_trial(config=config)]
    assert [row.split()[3] for row in shown(trials).splitlines()[:3]] == ["M", "64", "32"]


def test_flags_are_words_and_shapes_are_products():
    assert value_text(["-O1", "-g"]) == "-O1 -g"
    assert value_text([4, 8]) == "4x8"


def test_deterministic_counts_and_peers_get_columns(make_trial):
    metrics = {"instructions": 349175, "virtual_ns": 1500, "peers.openblas.ratio": 1.041}
    text = shown([make_trial(metrics=metrics)])
    for expected in ("349,175", "1.50 µs", "vs openblas", "1.04×"):
        assert expected in text


def test_nothing_is_cut_off_and_nothing_is_coloured_outside_a_terminal(make_trial, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    params = {"tile": {"multiply": {f"tunable_{n}": n for n in range(40)}}}
    text = shown([make_trial(params=params, workload="w" * 300)])
    assert "w" * 300 in text
    assert "tunable_38=38 tunable_39=39" in text
    assert "\x1b" not in text


def test_no_line_ends_in_blanks_outside_a_terminal(make_trial):
    file = io.StringIO()
    print_rows([{"name": "a", "reason": "long " * 100 + "."}, {"name": "b", "reason": ""}], file)
    header, _, short = file.getvalue().splitlines()
    assert (header, short) == ("name  reason", "b")
    failed = make_trial(status="crashed", verified=False, metrics={}, provider="", message="m")
    assert all(line == line.rstrip() for line in shown([make_trial(), failed]).splitlines())


def test_a_narrow_terminal_says_what_it_does_not_show(make_trial, terminal):
    page = terminal(70)
    print_run([make_trial()], BUILD, page)
    text = page.text()
    assert "not shown, for lack of width: case, provider" in text
    assert "\x1b[32mok" in text
    assert all("12.3 µs ±0.8%" in line for line in text.splitlines() if "matmul" in line)


def test_a_wide_column_that_is_left_out_makes_room_for_narrow_ones(terminal):
    page = terminal(30)
    headings = [Heading("name"), Heading("wide", spare=1), Heading("narrow", spare=2)]
    Page(page).table(headings, [["n", "w" * 27, "x"]])
    assert "narrow" in page.text()
    assert "(not shown, for lack of width: wide)" in page.text().replace("\n", " ")


def test_failures_are_told_below_with_stage_and_message(make_trial):
    failed = make_trial(
        status="build_failed",
        verified=False,
        metrics={},
        stage="library",
        point={"workload.sizes.M": 64},
        message="kernel.c:3: error: [/bold] boom\n" + "\n".join(f"line {n}" for n in range(30)),
    )
    text = shown([failed])
    assert "build_failed in stage library: matmul on host, M=64\n" in text
    assert "    kernel.c:3: error: [/bold] boom\n    line 0\n" in text
    assert "... 19 more lines" in text
    assert text.endswith("0 verified, 1 failed; built 2, cached 4 in 1.30 s\n")


def test_failures_of_one_kind_are_told_once(make_trial):
    crashed = [
        make_trial(status="crashed", verified=False, message="SIGSEGV", point={"n": n})
        for n in range(8)
    ]
    text = shown(crashed)
    assert text.count("SIGSEGV") == 1
    assert "matmul on host, n=0; n=1; n=2; n=3; n=4; and 3 more" in text
    assert "differ" not in text


def failures(make_trial, *messages, status="wrong"):
    return [
        make_trial(status=status, verified=False, stage="correct", message=message, metrics={})
        for message in messages
    ]


def test_messages_that_differ_in_numbers_or_paths_alone_are_told_once(make_trial):
    text = shown(
        failures(
            make_trial,
            "/a/b1c/kernel.c does not compile:\n  12 | x = 5;\n     | ^~~",
            "/a/d2e/kernel.c does not compile:\n 9 | x = -1.5e-3;\n   | ^~~~~~~",
            status="build_failed",
        )
    )
    assert "/a/b1c/kernel.c" in text
    assert "/a/d2e/kernel.c" not in text
    assert "(this is the first; the others differ only in numbers or paths)" in text


def test_where_a_few_kernels_went_wrong_is_told_of_each(make_trial):
    few = [f"y[{index}] is 1, golden 2" for index in range(3)]
    text = shown(failures(make_trial, *few))
    assert all(message in text for message in few)
    many = [f"y[{index}] is 1, golden 2" for index in range(30)]
    assert "(this is the first" in shown(failures(make_trial, *many))


def test_messages_that_really_differ_are_all_told(make_trial):
    messages = ["y[0] is 1", "z[0] is 1", "no flags for float32", "no flags for float64"]
    text = shown(failures(make_trial, *messages))
    assert all(message in text for message in messages)
    assert "differ only" not in text


def test_the_closing_line_counts_what_was_reused_or_did_not_converge(make_trial):
    trials = [make_trial(reused=True), make_trial(status="unconverged")]
    line = closing_line(trials, {"built": 0, "cached": 2, "seconds": 0})
    assert line == "2 verified, 0 failed, 1 unconverged, 1 from the store; built 0, cached 2 in 0 s"


def test_parameters_of_several_steps_and_equal_names_stay_apart():
    params = {
        "tile": {"multiply": {"size": 6}, "scale": {"size": 2}},
        "unroll": {"multiply": {"size": 4}},
    }
    assert params_text(params) == "multiply: tile.size=6 unroll.size=4; scale: size=2"
    assert params_text({"tile": {"mr": 6}, "pack": True}) == "mr=6 pack=true"


def test_results_show_id_and_origin(make_trial):
    file = io.StringIO()
    print_results([make_trial(point={"toolchain": "gcc"})], file)
    header, row, closing = file.getvalue().splitlines()
    assert header.split()[:7] == [
        "id",
        "created",
        "workload",
        "case",
        "target",
        "arch",
        "toolchain",
    ]
    assert header.count("toolchain") == 1
    assert row.startswith("0123456789ab  2025-01-02 03:04:05  matmul")
    assert closing == "1 trial"


def results_text(*trials) -> list[str]:
    file = io.StringIO()
    print_results(trials, file)
    return file.getvalue().splitlines()


def test_results_show_variant_and_extra_flags_where_they_are_not_the_usual(make_trial):
    def one(variant, flags):
        config = {"target": {"variant": variant}, "toolchain": {"extra_flags": flags}}
        return make_trial(config=config, point={"target.variant": variant})

    header = results_text(replace(one("release", []), point={}))[0]
    assert "variant" not in header and "extra_flags" not in header
    header, first, _, _ = results_text(one("asan", ["-O1", "-g"]), one("release", []))
    assert header.count("variant") == header.count("extra_flags") == 1
    assert "asan" in first and "-O1 -g" in first


def test_results_show_the_telling_line_of_what_failed(make_trial):
    wrong = make_trial(status="wrong", verified=False, message="y[0] is 1, golden 2\nmore")
    broken = make_trial(
        status="build_failed", verified=False, message="k.c does not compile:\nk.c:1: error: no"
    )
    header, first, second, third, _ = results_text(wrong, broken, make_trial())
    assert header.endswith("message")
    assert first.endswith("y[0] is 1, golden 2")
    assert second.endswith("k.c:1: error: no")
    assert third.endswith("model")
    assert "message" not in results_text(make_trial())[0]


def test_no_results_are_said_to_be_none():
    file = io.StringIO()
    print_results([], file)
    assert file.getvalue() == "0 trials\n"


def test_csv_has_a_column_for_every_number_parameter_and_swept_key(make_trial):
    file = io.StringIO()
    trials = [make_trial(point={"M": 64}, message="a,\nb"), make_trial(metrics={"x": 1.5})]
    write_csv(trials, file)
    first, second = csv.DictReader(io.StringIO(file.getvalue()))
    assert first["point.M"] == "64"
    assert first["params.tile.multiply.mr"] == "6"
    assert float(first["metrics.gflops"]) == 88.123
    assert first["message"] == "a,\nb"
    assert (second["point.M"], second["metrics.x"], second["metrics.gflops"]) == ("", "1.5", "")


def test_csv_of_nothing_is_a_header():
    file = io.StringIO()
    write_csv([], file)
    assert file.getvalue().startswith("id,created,workload,")


def test_tables_can_go_to_a_real_stream(make_trial, capsys):
    print_run([make_trial()], BUILD, sys.stderr)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "matmul" in captured.err


def test_injected_faults_are_seen_in_the_table(make_trial):
    def faulty(number):
        conditions = {FAULTS: f"slow=noc:{number}"}
        return make_trial(id=str(number), metrics={"virtual_ns": number}, conditions=conditions)

    out = io.StringIO()
    print_run([faulty(2), faulty(4), make_trial(id="w", metrics={"virtual_ns": 9})], {}, out)
    assert "note: with injected faults, so not ranked: slow=noc:2; slow=noc:4\n" in out.getvalue()
    assert "best" not in out.getvalue()
    (note,) = fault_notes(map(faulty, range(2, 10)))
    assert note.endswith("slow=noc:6; and 3 more")
    out = io.StringIO()
    print_results([faulty(2), make_trial(id="w", metrics={"virtual_ns": 9})], out)
    assert "slow=noc:2" in out.getvalue()


def test_trials_with_a_sanitizer_have_neither_ratio_nor_roof(make_trial):
    def variant(id, name, ns):
        metrics = {"median_ns": ns, "roof_fraction": 0.17}
        return make_trial(id=id, metrics=metrics, config={"target": {"variant": name}})

    out = io.StringIO()
    print_run([variant("a", "asan", 9.0), variant("b", "asan", 5.0)], {}, out)
    assert "17%" not in out.getvalue() and "best" not in out.getvalue()
    assert "note: times with a sanitizer mean nothing" in out.getvalue()
    out = io.StringIO()
    print_run([variant("a", "release", 9.0), variant("b", "release", 5.0)], {}, out)
    assert "17%" in out.getvalue() and "note:" not in out.getvalue()
