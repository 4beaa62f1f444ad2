"""Tensors that say where they are, on targets that have one memory only."""

from __future__ import annotations

from command_line import Project


def test_a_host_reads_tensors_in_place_wherever_they_are_said_to_be(project: Project) -> None:
    for place, meant in (("host", "in_place"), ("device", "device"), ("'device:0'", "device")):
        done = project.json("run", "workload=axpy", f"workload.tensors.x.place={place}")
        assert done.code == 0, done.stderr
        metrics = done.trial["metrics"]
        assert done.trial["placement"] == {"x": meant}
        assert metrics["transfer_bytes"] == 0
        assert "transfer_ns" not in metrics
        assert {name for name, v in metrics.items() if not isinstance(v, (int, float))} == {
            "deterministic"
        }


def test_where_tensors_were_is_stored_with_the_trial(project: Project) -> None:
    words = ("workload=axpy", "workload.tensors.x.place=host")
    first = project.json("run", *words).trial
    again = project.json("run", *words).trial
    assert again["reused"]
    assert again["placement"] == first["placement"] == {"x": "in_place"}
    assert project.json("results", f"id={first['id']}").trial["placement"] == {"x": "in_place"}
    found = project.json("results", "placement.x=in_place").trials
    assert first["id"] in {trial["id"] for trial in found}


def test_without_a_word_about_places_nothing_is_said_of_them(project: Project) -> None:
    trial = project.json("run", "workload=axpy").trial
    assert trial["placement"] == {}
    assert "transfer_bytes" not in trial["metrics"]


def test_a_place_that_is_none_is_refused_before_the_run(project: Project) -> None:
    for place in ("'device:1'", "cloud"):
        done = project.run("run", "workload=axpy", f"workload.tensors.y.place={place}")
        assert done.code == 2
        assert "workload.tensors.y.place" in done.stderr
        assert "Allowed: host, device, device:0." in done.stderr
