"""job_comment=on: what went wrong stays with the job, in a field that is empty or ours, written with the user's rights."""

import re

import pytest
from test_batch import script
from test_citizens import plugin_arguments
from test_first_failure import by_rank

STEP = "srun --aml-dist=pytorch"
DIES = by_rank(r2="exit 7", other="sleep 3")


@pytest.fixture(scope="module")
def site(cluster):
    with plugin_arguments(cluster, "job_comment=on"):
        yield cluster


def comment_of(cluster, job: str) -> str:
    """As slurmctld has it; with AccountingStoreFlags=job_comment it hands the same to sacct."""
    shown = cluster.run(f"scontrol show job {job}").out
    found = re.search(r"^ *Comment=(.*)$", shown, re.MULTILINE)
    return "" if not found or found[1] in ("", "(null)") else found[1].rstrip()


def run_job(cluster, workdir, *lines: str, flags: str = "") -> tuple[str, str]:
    done, out = cluster.job_output(f"--parsable {flags} -N2 -n4 {script(workdir, *lines)}", workdir)
    return comment_of(cluster, done.out.strip()), out


def test_the_first_failure_is_the_jobs_comment(site, workdir):
    comment, out = run_job(site, workdir, f"{STEP} {DIES}")
    (line,) = [line.removeprefix("aml-dist: ") for line in out.splitlines() if "first failure" in line]
    assert comment == f"aml-dist: step 0: {line}" and "rank 2" in line and "exit status 7" in line


def test_a_refusal_is_the_jobs_comment(site, workdir):
    comment, _ = run_job(site, workdir, "srun --aml-dist=pytorch,process_count=8 true", "exit 0")
    assert comment == "aml-dist: step 0: refused: process_count=8 but the step has 4 tasks: use srun -n8 or drop process_count"


def test_a_later_step_replaces_what_is_ours(site, workdir):
    comment, _ = run_job(site, workdir, "srun --aml-dist=pytorch,process_count=8 true", f"{STEP} {DIES}", "exit 0")
    assert comment.startswith("aml-dist: step 1: first failure: rank 2")


def test_a_step_that_ends_well_leaves_what_was_there(site, workdir):
    comment, _ = run_job(site, workdir, f"{STEP} {DIES}", f"{STEP} true", "exit 0")
    assert comment.startswith("aml-dist: step 0: first failure")


@pytest.mark.parametrize("own", ["run 17 of the sweep", "aml-distance: 3"])
def test_a_users_own_comment_stays(site, workdir, own):
    comment, out = run_job(site, workdir, f"{STEP} {DIES}", flags=f"--comment='{own}'")
    assert comment == own and "first failure" in out


def test_a_comment_that_the_user_writes_later_stays(site, workdir):
    comment, _ = run_job(site, workdir, f"{STEP} {DIES}", "scontrol update job=$SLURM_JOB_ID comment=mine", f"{STEP} {DIES}", "exit 0")
    assert comment == "mine"


def test_nothing_without_the_sites_word(cluster, workdir):
    with plugin_arguments(cluster, "job_comment=off"):
        comment, out = run_job(cluster, workdir, f"{STEP} {DIES}")
    assert comment == "" and "first failure" in out


def test_a_cancelled_job_has_no_comment(site, workdir):
    comment, _ = run_job(site, workdir, f"{STEP} sleep 60 & sleep 2; scancel $SLURM_JOB_ID; wait")
    assert comment == ""
