"""Tensors that say where they are, on targets that have one memory only."""

from __future__ import annotations

from command_line import Project


def test_a_host_reads_tensors_in_place_wherever_they_are_said_to_be(project: Project) -> None:
    for place, meant in (("host", "in_place"), ("device", "device"), ("'device:0'", "device")):
        done = project.json("run", "workload=axpy", f"workload.tensors.x.place={place}")
        assert done.code == 0, done.stderr
        metrics = done.trial["metrics"]
        assert metrics["placement"] == {"x": meant}
        assert metrics["transfer_bytes"] == 0
        assert "transfer_ns" not in metrics


def test_without_a_word_about_places_nothing_is_said_of_them(project: Project) -> None:
    metrics = project.json("run", "workload=axpy").trial["metrics"]
    assert "placement" not in metrics
    assert "transfer_bytes" not in metrics


def test_a_place_that_is_none_is_refused_before_the_run(project: Project) -> None:
    for place in ("'device:1'", "cloud"):
        done = project.run("run", "workload=axpy", f"workload.tensors.y.place={place}")
        assert done.code == 2
        assert "workload.tensors.y.place" in done.stderr
        assert "Allowed: host, device, device:0." in done.stderr
