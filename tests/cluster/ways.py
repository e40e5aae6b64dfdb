"""Other ways of starting a step for the whole suite (tests/run-generation), and what is not tried so, each with the reason.

AMLDIST_TEST_STEPS=stepmgr   a slurmstepd of the job manages its steps
AMLDIST_TEST_STEPS=async     and each srun is the one in asynchronous/, which starts its step by srun --async

AMLDIST_TEST_SETTINGS="ProctrackType=proctrack/cgroup AuthType=auth/slurm": lines of slurm.conf for all clusters.
"""

from __future__ import annotations

import fnmatch
import os

STEPS = os.environ.get("AMLDIST_TEST_STEPS", "")
SETTINGS = {"SlurmctldParameters": "enable_stepmgr", "PrologFlags": "Contain"} if STEPS else {}
SETTINGS |= dict(line.split("=", 1) for line in os.environ.get("AMLDIST_TEST_SETTINGS", "").split())


def with_settings(arguments: tuple[str, ...]) -> list[str]:
    """Arguments of `devcluster start` with our lines of slurm.conf; a test's own list under the same name is made longer."""
    out = list(arguments)
    if STEPS and "--configless" in out:  # which is such a line, too
        out += ["--conf", "SlurmctldParameters=enable_configless"]
    for name, value in SETTINGS.items():
        for at, word in enumerate(out):
            if word.startswith(f"{name}="):
                out[at] = f"{word},{value}"
                break
        else:
            out += ["--conf", f"{name}={value}"]
    return out


# Patterns of test ids (file::test[parameters]).
NOT_TRIED: dict[str, dict[str, str]] = {
    "stepmgr": {
        "test_layouts.py::test_environment_matches_what_tasks_observe[[]-x node1 -N2 -n4 -m cyclic]":
            "Slurm 24.11 refuses such a step itself: it knows no node that -x names",
        "test_faults.py::test_a_plugin_for_another_slurm_on_one_node":
            "PrologFlags=Contain starts a step of Slurm's own there first, which ends the job",
    },
    "async": {
        "test_first_failure.py::*": "srun's line and advice; those of its stand-in: test_async.py",
        "test_hang.py::*": "srun watches for hangs; a line says that nobody does: test_async.py",
        "test_parameter_servers.py::*": "srun's end of them; that by its stand-in: test_async.py",
        "test_job_comment.py::*": "srun writes the comment",
        "test_sacct.py::*": "srun writes the comment",
        "test_fabric.py::*": "votes through srun; those through its stand-in: test_async.py",
        "test_fabric_differences.py::*": "srun compares the nodes",
        "test_faults.py::*": "about srun, its channel and its end",
        "test_heterogeneous.py::*": "Slurm: a heterogeneous step needs srun",
        "test_two_users.py::test_a_stranger_cannot_report*": "about srun's channel; that of its stand-in: test_async.py",
        "test_toolbox.py::test_an_array_of_steps_that_race": "many steps, each of which is asked for until it has ended, take too long",
        "test_toolbox.py::test_a_hostile_job_name*": "srun tells the first failure",
        "test_toolbox.py::test_closed_descriptors*": "srun's descriptors, which no task has here",
        "test_datagrams.py::*": "about srun's channel; that of its stand-in: test_async.py",
        "test_hostile_srun.py::*": "how long srun waits, and what it says",
        "test_root.py::*": "datagrams to srun",
        "test_oci.py::*": "each has its own cluster, without a step manager",
        "test_generations.py::*": "how srun refuses a plugin of another Slurm",
        "test_two_releases.py::*": "what srun says",
        "test_newer_slurm.py::*": "about samples for slurmctld, not about steps",
        "test_layouts.py::*--mpi=pm*": "Slurm: --async has no MPI but none",
        "test_collective.py::*--mpi=pm*": "as above",
        "test_pmi2.py::*": "as above",
        "test_trace.py::test_the_line_names_the_last_call*": "srun tells the first failure, and with it the last call",
        "test_trace.py::test_a_recorder_is_read*": "as above",
        "test_trace.py::test_a_call_that_comes_too_late*": "as above",
        "test_containers.py::test_a_failure_in_a_container_is_still_told": "srun tells the first failure",
        "test_trace.py::test_worlds_from_a_store_are_watched*": "srun watches for hangs",
        "test_aml_run.py::test_the_first_failure_is_told*": "the status and the end of the other tasks are srun's; aml-run reads what srun told",
        "test_aml_run.py::test_words_in_the_output_decide_nothing": "aml-run reads what srun told",
        "test_aml_run.py::test_a_step_reads_standard_input": "a step without srun has no standard input",
        "test_aml_run.py::*whatever_the_allocation_was_made_for[[]line2]": "Slurm: --async has no MPI but none",
        "test_documents.py::*--gpus-per*": "the srun of these tests asks for its job without GPUs",
        "test_documents.py::*--num_gpus*": "as above",
        "test_citizens.py::test_first_failure_under_a_default_kind": "srun tells the first failure",
        "test_citizens.py::test_fences_of_mpi_are_fences": "Slurm: --async has no MPI but none",
        "test_citizens.py::test_double_launch_is_refused": "each node says it, as no srun says it once",
        "test_citizens.py::test_a_master_without_the_sites_interface_is_refused": "each node says it, in its own words",
        "test_options.py::test_bad_options_are_refused_before_launch[[]*srun *": "a job is there before the step",
        "test_options.py::test_counts_are_assertions*": "each node says it, as no srun says it once: test_async.py",
        "test_options.py::test_an_impossible_port_in_the_environment_is_refused_before_launch": "as counts: each node says it",
    },
}


def not_tried(test: str) -> str:
    """Why this test does not run under this way of starting a step; empty if it does."""
    return next((reason for pattern, reason in NOT_TRIED.get(STEPS, {}).items() if fnmatch.fnmatchcase(test, pattern)), "")
