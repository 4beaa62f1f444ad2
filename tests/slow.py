"""Which tests `tests/run --fast` leaves out."""

from __future__ import annotations

from pathlib import Path

SLOW_FOLDERS = ("attack", "emulated", "firmware", "kernels", "opencl")
"""Where every test starts emulators or drivers, or compiles kernels by the hundred."""
SLOW_FILES = {
    "test_cli_calibrate.py",
    "test_cli_changes_outside.py",
    "test_cli_compare.py",
    "test_cli_doctor_install.py",
    "test_cli_faults_sweep.py",
    "test_cli_interrupts.py",
    "test_cli_killed.py",
    "test_cli_measure.py",
    "test_cli_memory.py",
    "test_cli_progress.py",
    "test_cli_resume.py",
    "test_cli_screening.py",
    "test_cli_sharing.py",
    "test_config_samples.py",
    "test_config_sweeps.py",
    "test_postgres.py",
}
"""Where every test runs whole sweeps or rounds, interrupts or kills them, composes with Hydra again
and again, or needs a server. tests/engine_run has the same promises over a fake device."""


SLOW_TESTS = (
    # build
    "test_a_damaged_artifact_is_noticed_and_built_again[remove",
    "test_a_damaged_artifact_is_noticed_and_built_again[truncate",
    "test_a_header_that_a_flag_includes_is_in_the_key[clang",
    "test_a_library_is_in_the_key[clang",
    "test_a_runner_is_built_and_found_under_its_stable_path[clang",
    "test_an_installed_package_finds_its_own_files",
    "test_an_interrupted_build_leaves_nothing_behind[2",
    "test_native_is_concrete_and_fits_the_schema[clang",
    "test_only_flags_that_the_compiler_knows_are_accepted[clang",
    "test_plain_scons_builds_every_runner_and_then_nothing",
    "test_plain_scons_tells_what_does_not_compile",
    "test_same_key_and_bytes_in_any_folder[clang",
    "test_same_key_and_bytes_in_any_folder[gcc-asan",
    "test_two_builders_at_once_both_succeed",
    "test_what_the_user_sets_of_native_is_kept[clang",
    # cli
    "test_a_clone_takes_nothing_from_the_tree_it_was_copied_from",
    "test_a_copied_project_has_the_same_keys_and_builds_nothing",
    "test_a_damaged_store_is_said_and_repaired",
    "test_a_failed_build_is_tried_again",
    "test_a_golden_of_nan_or_infinity_is_not_met_by_just_anything",
    "test_a_header_beside_a_plain_c_kernel_is_part_of_it",
    "test_a_missing_emulator_is_shown_with_how_to_get_it",
    "test_a_plan_of_many_points_stays_short_for_people",
    "test_a_reason_says_what_kind_of_thing_changed[words2",
    "test_a_reason_says_what_kind_of_thing_changed[words3",
    "test_a_reason_says_what_kind_of_thing_changed[words4",
    "test_a_recipe_replays_in_another_project",
    "test_a_sweep_is_replayed_in_its_order",
    "test_a_target_that_is_not_available_says_why_and_what_to_install",
    "test_a_target_whose_file_is_wrong_hides_no_emulator",
    "test_a_target_with_one_session_queues_the_next_run",
    "test_a_team_works_with_one_server_and_nobody_sees_its_password",
    "test_an_estimate_goes_by_what_was_built_and_run_before",
    "test_any_folder_name_will_do",
    "test_damaged_caches_cost_time_and_nothing_else",
    "test_every_emulator_is_listed_once_with_its_targets",
    "test_explain_prints_one_line_for_each_reason",
    "test_integers_are_not_all_zero_unless_that_is_asked_for",
    "test_nothing_is_left_to_do_after_a_sweep",
    "test_nothing_is_written_outside_the_projects_own_folder",
    "test_no_command_sends_them_to_a_terminal",
    "test_odd_files_end_in_one_message[recipe to write",
    "test_odd_files_end_in_one_message[store",
    "test_python_files_in_the_current_folder_are_not_run",
    "test_rerun_all_measures_again_without_building",
    "test_results_show_how_often_a_trial_was_reused",
    "test_shipped_sweeps_can_be_planned",
    "test_the_macros_of_a_plain_c_kernel_are_tunables",
    "test_the_recipe_of_a_sweep_replays_in_its_order",
    "test_the_very_first_start_prints_one_document_and_nothing_else",
    "test_a_failed_installation_is_said",
    "test_a_plan_names_the_keys_that_are_then_built",
    "test_a_read_only_project_can_still_be_planned_and_queried",
    "test_a_sample_larger_than_the_sweep_is_told_beside_the_document",
    "test_an_interrupted_sweep_keeps_what_it_finished_and_the_next_run_does_the_rest[15",
    "test_bad_input_builds_and_stores_nothing",
    "test_rerun_failed_repeats_only_what_failed",
    "test_targets_say_why_an_emulator_will_not_do",
    "test_the_tunables_of_ones_own_template_are_swept",
    "test_what_is_there_is_not_installed_again",
    "test_what_is_typed_wrongly_is_named[run ",
    # config and docs
    "test_equals_what_stock_hydra_composes",
    "test_every_workload_plans_the_same_from_its_recipe",
    "test_hardware_that_a_package_adds_is_refused_with_a_hint_until_its_tools_are_there",
    "test_the_shipped_configs_are_all_valid",
    "test_the_short_way_reads_a_word_exactly_as_hydra_does",
    "test_interpolations_are_resolved_as_omegaconf_does",
    # device, measure, native and store
    "test_a_host_reads_tensors_in_place_wherever_they_are_said_to_be",
    "test_a_runner_whose_cpu_cannot_flush_its_caches_refuses",
    "test_every_task_runs_once_and_without_a_race[clang",
    "test_the_caches_of_an_aarch64_cpu_can_be_flushed",
    "test_the_runner_compiles_without_a_warning[clang",
    "test_an_emptied_store_is_saved_from_its_log",
    "test_every_attempt_of_the_same_trials_by_four_processes_has_its_own_number[postgres",
    "test_several_processes_write_a_new_store_at_once[postgres",
    "test_without_a_word_about_places_nothing_is_said_of_them",
)
"""How the names of those tests begin that take longest; beside each, a shorter one of the same
capability stays in the fast run."""
TWICE = {"test_conditions.py", "test_contract.py"}
"""Files whose tests run on a sanitized device as well; in the fast run test_sanitized.py does."""


def is_slow(path: Path, name: str) -> bool:
    if path.parent.name in SLOW_FOLDERS or path.name in SLOW_FILES:
        return True
    return name.startswith(SLOW_TESTS) or (path.name in TWICE and "asan" in name)
