"""`aml-run --wait`: a job's end is what Slurm says and what its script and srun have recorded, never what it printed.

The stand-in for sbatch runs the very script that aml-run wrote, as Slurm would; that for srun runs the job's program, and
writes the record's line about the first failure where the plugin would."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import NOT_FOUND

FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
SAID = "aml-dist: first failure: rank 0 (local 0) on node9: exit status 42, 0.1 s after the start"
FAILED_FIRST = "rank 2 (local 0) on node3: exit status 7, 0.1 s after the start"


def ended(status: int, evidence: str = FAILED_FIRST) -> str:
    """As srun's plugin writes it (libdist/step/messages/end_record.hpp)."""
    return json.dumps({"schema": 1, "step": "17.0", "cause": "rank_exit", "rank": 2, "node": "node3", "status": status, "signal": None,
                       "time": 1, "evidence": evidence, "nodes_blamed": []}, separators=(",", ":"))


@pytest.fixture
def cluster(slurm):
    """One node that runs a job at once; `state` is what scontrol says of it, None that it has forgotten it."""

    def start(state: str | None, program: str = "true", after: str = "", restarts: int = 0):
        slurm.program("srun", f"{program}")
        environment = f"SLURM_JOB_ID=17 SLURM_RESTART_COUNT={restarts}"
        slurm.program("sbatch", f"cat >script; {environment} bash script >slurm-17.out 2>&1; echo $? >code; {after}\necho 17")
        slurm.program("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
        known = f"printf 'JobId=17\\n   JobState={state} Reason=None\\n   Restarts={restarts} ExitCode=%s:0\\n   StdOut=%s\\n' " \
                f"$(cat code) {slurm.folder}/slurm-17.out"
        slurm.program("scontrol", FORGOTTEN if state is None else known)
        return slurm

    return start


def wait(aml_run, slurm, *options: str):
    done = aml_run.run("--wait", "--json", *options, "--", "x", cwd=slurm.folder, env=slurm.env)
    return done, json.loads(done.out) if done.out else {}


def test_words_in_the_output_decide_nothing(aml_run, cluster):
    """The line was looked for in the job's output: who printed it chose aml-run's exit status and its report."""
    done, answer = wait(aml_run, cluster("FAILED", f"echo; echo '{SAID}'; exit 3"))
    assert done.status == 3 and answer["exit_status"] == 3 and answer["first_failure"] is None, str(done)
    assert SAID in done.said and "node9" not in done.said.splitlines()[-1], str(done)


def test_words_in_the_output_make_no_failure(aml_run, cluster):
    done, answer = wait(aml_run, cluster("COMPLETED", f"echo '{SAID}'"))
    assert done.status == 0 and answer["first_failure"] is None, str(done)


def test_the_task_that_failed_first_is_told_and_its_status_handed_on(aml_run, cluster):
    record = f"echo '{ended(7)}' >>\"$AMLDIST_JOB_RECORD\"; exit 143"
    done, answer = wait(aml_run, cluster("FAILED", record))
    assert done.status == 7 and answer["first_failure"] == FAILED_FIRST, str(done)
    assert f"exit status 7; first failure: {FAILED_FIRST}" in done.said.splitlines()[-1]


@pytest.mark.parametrize("state, status", [("CANCELLED", 130), ("TIMEOUT", 124), ("NODE_FAIL", 1), ("OUT_OF_MEMORY", 137)])
def test_an_end_that_slurm_decided_is_not_the_tasks(aml_run, cluster, state, status):
    """Tasks that Slurm ends fail, too."""
    done, answer = wait(aml_run, cluster(state, f"echo '{ended(143)}' >>\"$AMLDIST_JOB_RECORD\"; exit 143"))
    assert done.status == status and answer["state"] == state, str(done)


@pytest.mark.parametrize("program, state, status", [("true", "COMPLETED", 0), ("exit 5", "FAILED", 5)])
def test_a_job_that_slurm_has_forgotten_ended_as_its_script_recorded(aml_run, cluster, program, state, status):
    """There need be no accounting, and slurmctld keeps an ended job for MinJobAge only."""
    done, answer = wait(aml_run, cluster(None, program))
    assert done.status == status and answer["state"] == state, str(done)


def test_a_script_that_was_killed_recorded_no_end(aml_run, cluster):
    """Its trap on EXIT would have said 0."""
    done, _ = wait(aml_run, cluster(None, "kill -TERM $PPID; sleep 0.2"))
    assert done.status == NOT_FOUND and "Slurm no longer knows job 17" in done.said, str(done)


def test_the_record_of_an_earlier_run_does_not_count(aml_run, cluster):
    """A requeued job begins its record anew; until then that of the run before lies there."""
    stale = f"printf 'job 17 0\\n%s\\nended 9\\n' '{ended(9)}' >.aml-run-17"
    done, answer = wait(aml_run, cluster("FAILED", "exit 5", after=stale, restarts=1))
    assert done.status == 5 and answer["first_failure"] is None, str(done)
    done, _ = wait(aml_run, cluster("FAILED", "exit 5", after=f"printf 'job 18 0\\n%s\\n' '{ended(9)}' >.aml-run-17"))
    assert done.status == 5, str(done)


@pytest.mark.parametrize("record", ["", "rubbish\n", "failed 9 x y\n", "job 17 0\nfailed 9 x\n", "job 17 0\n" + "x" * 100_000])
def test_a_record_that_is_none_leaves_slurms_answer(aml_run, cluster, record):
    slurm = cluster("FAILED", "exit 5", after="cat rubbish >.aml-run-17")
    (slurm.folder / "rubbish").write_text(record)
    assert wait(aml_run, slurm)[0].status == 5


def test_the_record_is_no_link_and_no_pipe(aml_run, cluster):
    for after in (f"rm .aml-run-17; printf 'job 17 0\\n%s\\nended 9\\n' '{ended(9)}' >real; ln -s real .aml-run-17",
                  "rm .aml-run-17; mkfifo .aml-run-17"):
        assert wait(aml_run, cluster("FAILED", "exit 5", after=after))[0].status == 5


def test_nothing_is_left_behind_and_the_record_lies_beside_the_log(aml_run, cluster):
    slurm = cluster("COMPLETED", 'echo "$AMLDIST_JOB_RECORD" >told')
    for folder in ("", "logs", "a b"):
        (slurm.folder / folder).mkdir(exist_ok=True)
        wait(aml_run, slurm, *([f"--output={folder}/%j.out"] if folder else []))
        assert slurm.written("told").strip() == str(slurm.folder / folder / ".aml-run-17")
    assert wait(aml_run, slurm, "--output=%x/%j.out")[0].status == 0
    assert slurm.written("told").strip() == str(slurm.folder / ".aml-run-17")
    assert not [*slurm.folder.rglob(".aml-run-*")]


def test_where_no_record_can_be_written_the_job_runs(aml_run, cluster):
    done, answer = wait(aml_run, cluster("FAILED", "echo ran >ran; exit 5"), "--output=/nonexistent/%j.out")
    assert done.status == 5 and answer["state"] == "FAILED", str(done)
    assert "nonexistent" not in done.said.split("submitted job")[0]


def test_only_who_waits_has_a_record(aml_run, tmp_path):
    assert "record" not in aml_run.good("--dry-run", "--", "x").text
    for setup in ("true", "set -euo pipefail"):
        script = tmp_path / "job.sh"
        script.write_text(aml_run.good("--dry-run", "--wait", "--setup", setup, "--", "x", "$RANK", cwd=tmp_path).text)
        done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_a_script_with_set_e_records_its_end(aml_run, cluster):
    done, answer = wait(aml_run, cluster(None, "exit 5"), "--setup", "set -euo pipefail")
    assert done.status == 5 and answer["state"] == "FAILED", str(done)


@pytest.mark.parametrize("reason, hopeless", [("PartitionConfig", True), ("PartitionTimeLimit", True), ("Priority", False), ("Resources", False)])
def test_a_job_that_can_never_start_is_told_at_once(aml_run, slurm, reason, hopeless):
    slurm.program("sbatch", "cat >script; echo 17")
    slurm.program("scontrol", f"printf 'JobId=17\\n   JobState=PENDING Reason={reason}\\n'")
    done = aml_run.good("--", "x", cwd=slurm.folder, env=slurm.env)
    assert (f"job 17 can never start as it is ({reason})" in done.said) == hopeless, str(done)
    assert not hopeless or "end it with scancel 17" in done.said
