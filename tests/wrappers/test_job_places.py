"""Where a job runs and what is left of it: launchers in its command, signals, GPUs, folders that a node lacks, tasks of arrays,
jobs that Slurm has forgotten."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import NOT_FOUND, USAGE
from test_job_file import directives


def script(aml_run, path, *options) -> str:
    return aml_run.good("--dry-run", str(path), *options).text


@pytest.mark.parametrize("text, refused", [
    ("command: mpirun -np 8 ./x\ndistribution: {type: mpi}\nresources: {instance_count: 2}\n", "8 processes (mpirun)"),
    ("command: mpirun -np 8 ./x\ndistribution: {type: mpi}\n", ""),
    ("command: srun ./x\ndistribution: {type: mpi}\n", "the command starts srun"),
    ("command: llamafactory-cli train c\ndistribution: {type: pytorch}\nresources: {instance_count: 2}\n", "export NNODES=2"),
    ("command: llamafactory-cli train c\ndistribution: {type: pytorch}\nresources: {instance_count: 2}\n"
     "environment_variables: {NNODES: 2}\n", ""),
])
def test_a_launcher_that_would_make_several_worlds_is_refused_before_the_job_waits(aml_run, job, text, refused):
    if refused:
        assert refused in aml_run.refusal(USAGE, "--dry-run", job(text))
    else:
        script(aml_run, job(text))


@pytest.mark.parametrize("command, signal_option, wanted", [
    ("python t.py | tee log", "USR1@70", "USR1"), ("a; b", "R:SIGUSR2@70", "SIGUSR2"), ("a && b", "10", "10"),
    ("python t.py", "USR1@70", None), ("a; b", "B:USR1@70", None), ("a; b", "$(x)@70", None),
])
def test_a_signal_before_the_limit_is_for_the_ranks(aml_run, job, command, signal_option, wanted):
    text = script(aml_run, job(f"command: {command}\n"), f"--signal={signal_option}")
    assert ("command='trap : " in text) == (wanted is not None) and (wanted is None or f"trap : {wanted}; " in text)


@pytest.mark.parametrize("compute, options, warned", [
    ("gpu-cluster", [], True), ("azureml:A100x8", [], True), ("nc24rs-v3", [], True), ("cpu-cluster", [], False), ("encoder", [], False),
    ("gpu-cluster", ["--gpus-per-node=4"], False), ("gpu-cluster", ["--gres=gpu:1"], False),
    ("gpu-cluster", ["--set", "resources.instance_type=Standard_NC24rs_v3"], False)])
def test_a_compute_with_gpus_in_its_name_that_gets_none_is_named(aml_run, job, compute, options, warned):
    said = aml_run.good("--dry-run", job(f"command: x\ncompute: {compute}\n"), *options).said
    assert ("but the job requests no GPU: add --gpus-per-node=N" in said) == warned, said


def test_a_folder_that_a_node_lacks_ends_the_job_instead_of_tmp(aml_run, slurm, tmp_path):
    slurm.program("srun", "echo ran")
    text = aml_run.good("--dry-run", "-N2", "-D", "none", "--", "hostname", cwd=tmp_path).text
    done = subprocess.run(["bash", "-c", text], cwd="/", env=slurm.env, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "ran" not in done.stdout, done
    assert f"so the nodes do not share it: {tmp_path}/none" in done.stderr, done


ARRAY = "\n\n".join(f"JobId={job} ArrayJobId=6 ArrayTaskId={task} JobName=x\n   JobState={state} Reason=None\n   ExitCode=0:0"
                    for job, task, state in [(6, 3, "COMPLETED"), (8, 2, "RUNNING"), (7, 1, "COMPLETED")])


@pytest.mark.parametrize("words, record, said", [
    (["--show", "6"], ARRAY, "array 6:\n  6_3: completed\n  6_2: running\n  6_1: completed\n"),
    (["--show", "6_2"], ARRAY.split("\n\n")[1], "job 6_2: running\n"), (["--show", "8"], ARRAY.split("\n\n")[1], "job 8: running\n"),
    (["--cancel", "6"], ARRAY, "cancelled the array 6, all its tasks (one alone: --cancel 6_TASK)"),
    (["--cancel", "6_2"], ARRAY.split("\n\n")[1], "cancelled job 6_2"),
    (["--cancel", "7"], ARRAY.split("\n\n")[2], "job 7 has ended (completed)"),
])
def test_arrays_and_their_tasks_are_told_apart(aml_run, slurm, tmp_path, words, record, said):
    (tmp_path / "record").write_text(record + "\n")
    slurm.program("scontrol", f'[ "$3" = {words[1]} ] && cat {tmp_path}/record')
    slurm.program("scancel", f'echo "$@" >{tmp_path}/cancelled')
    done = aml_run.run(*words, env=slurm.env, cwd=tmp_path)
    assert said in done.text + done.said, done
    if words[0] == "--cancel":
        assert (tmp_path / "cancelled").read_text().strip() == words[1]


@pytest.mark.parametrize("record, files, said", [
    ("job 17 0\nended 0\n", ["slurm-17.out"], "job 17: completed; output: {}/slurm-17.out\n"), ("job 17 0\nended 3\n", [], "job 17: failed\n"),
    (None, ["outputs/17/r"], "job 17: ended\n"), (None, [], "Slurm no longer knows job 17")])
def test_a_job_that_slurm_has_forgotten_is_found_by_what_it_left_here(aml_run, slurm, tmp_path, record, files, said):
    slurm.program("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    slurm.program("sacct", "exit 1")
    if record:
        (tmp_path / ".aml-run-17").write_text(record)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("result")
    done = aml_run.run("--show", "17", env=slurm.env, cwd=tmp_path)
    assert said.format(tmp_path) in done.text + done.said, done
    aml_run.run("--download", "17", "--download-path", str(tmp_path / "to"), env=slurm.env, cwd=tmp_path)
    assert all((tmp_path / "to/17" / name.replace("/17", "")).is_file() for name in files)


@pytest.mark.parametrize("ends, status", [
    ("COMPLETED 0:0", 0), ("FAILED 3:0", 3), ("FAILED 0:9", 137), ("TIMEOUT 0:0", 124), ("CANCELLED 0:15", 130),
    ("OUT_OF_MEMORY 0:125", 137), ("NODE_FAIL 1:0", 1),
])
def test_the_jobs_end_is_handed_through(aml_run, slurm, ends, status):
    state, code = ends.split()
    slurm.program("sbatch", "cat >script; echo 17")
    slurm.program("scontrol", f"printf 'JobId=17\\n   JobState={state} Reason=None\\n   ExitCode={code}\\n   StdOut=/dev/null\\n'")
    done = aml_run.run("--wait", "--json", "--", "x", env=slurm.env)
    assert done.status == status, str(done)
    assert json.loads(done.out)["exit_status"] == status and json.loads(done.out)["state"] == state


def test_a_job_that_slurmctld_has_forgotten_is_looked_up_in_the_accounting(aml_run, slurm):
    slurm.program("sbatch", "cat >script; echo 17")
    slurm.program("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    slurm.program("sacct", "echo 'FAILED|4:0|node1'")
    assert aml_run.run("--wait", "--", "x", env=slurm.env).status == 4
    slurm.program("sacct", "exit 1")
    done = aml_run.run("--wait", "--", "x", env=slurm.env)
    assert done.status == NOT_FOUND and "Slurm no longer knows job 17" in done.said


@pytest.mark.parametrize("more, options, nodes, keep", [
    ("retry_settings: {max_retries: 4}\n", [], "2", "keep --retries=4 -- srun "),
    ("retry_settings: {max_retries: 4, timeout: 9}\nqueue_settings: {job_tier: Spot}\n", ["--retries=5"], "2", "keep --retries=5 --requeue -- srun "),
    ("", ["--spares=1", "--grace", "9"], "3", "keep --spares=1 --grace=9 -- srun "),
])
def test_a_step_that_is_kept_alive(aml_run, job, more, options, nodes, keep):
    path = job("command: a\nresources: {instance_count: 2}\ndistribution: {type: pytorch, process_count_per_instance: 4}\n" + more)
    text = script(aml_run, path, *options)
    assert f"aml-dist {keep}" in text and directives(text)["nodes"] == nodes and directives(text)["ntasks-per-node"] == "4", text
    assert ("requeue" in directives(text)) == ("--requeue" in keep), text


def test_a_tier_that_is_only_requeued(aml_run, job):
    text = script(aml_run, job("command: a\nqueue_settings: {job_tier: Spot}\n"))
    assert "#SBATCH --requeue" in text and "keep" not in text


@pytest.mark.parametrize("options, says", [
    (["--spares=x"], "--spares=x and --nodes=1: give two whole numbers"),
    (["--spares=1", "-N2", "-n3"], "--spares, and 3 tasks cannot be shared out among 2 nodes"),
])
def test_spares_that_make_no_sense(aml_run, options, says):
    assert says in aml_run.refusal(USAGE, "--dry-run", *options, "--", "a")
