"""What sacct shows, with a real slurmdbd over MariaDB: a step's first failure or refusal in the job's comment, and nobody's own
comment lost. What is written when, in all its cases: test_job_comment.py."""

import json
import pathlib
import re
import time

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE
from test_batch import script
from test_faults import wait_until
from test_job_comment import DIES, STEP


@pytest.fixture(scope="module")
def site():
    cluster = Cluster(f"{NAME}-db"[-16:].lstrip("-"), 2)
    started = cluster.devcluster("start", "--nodes", "2", "--accounting", "--restart", "--plugin", PLUGIN, "--plugin-args", "job_comment=on",
                                 *(["--release", RELEASE] if RELEASE else []))
    if "--accounting: not installed" in started.err:
        pytest.skip("slurmdbd or MariaDB is not installed (contrib/setup/install-packages test)")
    assert started.status == 0, str(started)
    yield cluster
    assert cluster.devcluster("stop").status == 0


def shown(site: Cluster, workdir: pathlib.Path, *lines: str, flags: str = "", user: str = "alice") -> tuple[str, str, str]:
    """State, exit code and comment of a batch job in sacct, once it is told of the job's end."""
    done, _ = site.job_output(f"--parsable {flags} -N2 -n4 {script(workdir, *lines)}", workdir, user)
    job = done.out.strip()
    ask = f"sacct -X -n -P -j {job} --format=State,ExitCode,Comment"
    done = site.run(f"until {ask} | grep -q '^[CF][OA]'; do sleep 0.2; done; {ask}", user, timeout=30)
    assert done.status == 0 and done.out.count("\n") == 1, str(done)
    state, code, comment = done.out.rstrip("\n").split("|", 2)
    return state, code, comment


def test_the_first_failure(site, workdir):
    state, code, comment = shown(site, workdir, f"{STEP} {DIES}")
    assert (state, code) == ("FAILED", "7:0")
    assert re.match(r"aml-dist: step 0: first failure: rank 2 \(local \d\) on node[12]: exit status 7, ", comment), comment


def test_a_refusal(site, workdir):
    state, _, comment = shown(site, workdir, "srun --aml-dist=pytorch,process_count=8 true")
    assert state == "FAILED"
    assert comment == "aml-dist: step 0: refused: process_count=8 but the step has 4 tasks: use srun -n8 or drop process_count"


def test_a_users_own_comment(site, workdir):
    assert shown(site, workdir, f"{STEP} {DIES}", flags="--comment='run 17'") == ("FAILED", "7:0", "run 17")


def test_nothing_where_all_went_well(site, workdir):
    assert shown(site, workdir, f"{STEP} true") == ("COMPLETED", "0:0", "")


def test_another_user_sees_the_sentence_and_cannot_change_it(site, workdir):
    """sacct has no secrets unless the site says PrivateData; slurmdbd lets only the job's user and operators change a comment."""
    shown(site, workdir, f"{STEP} {DIES}")
    last = "$(sacct -X -n -P -a --format=JobID | tail -n 1)"
    changed = site.run(f"sacctmgr -i modify job where jobid={last} set comment=mine", "bob")
    assert changed.status != 0, str(changed)
    told = site.run(f"sacct -X -n -P -a -j {last} --format=Comment", "bob")
    assert told.out.startswith("aml-dist: step 0: first failure"), str(told)


@pytest.mark.parametrize("who", ["root", "alice"])
def test_who_cancelled_a_job(site, workdir, who):
    """Of a batch job and of a srun of its own; slurmctld alone does not tell."""
    record = workdir / "end.json"
    job = script(workdir, f"export AMLDIST_END_RECORD={record}", "srun --aml-dist=pytorch bash -c 'echo runs; exec sleep 60'")
    submitted = site.run(f"sbatch --parsable -J whose -N2 -n4 --output={workdir}/out {job}", "alice")
    wait_until(lambda: (workdir / "out").exists() and (workdir / "out").read_text().count("runs") == 4)
    assert site.run("scancel -n whose", who).status == 0, str(submitted)
    wait_until(lambda: record.exists() and record.read_text().endswith("\n"))
    end = json.loads(record.read_text())
    assert (end["cause"], end["evidence"]) == ("cancelled", f"the job was cancelled by {who} (scancel, or Ctrl-C in srun)"), end
    assert f"aml-dist: ended by Slurm: {end['evidence']}\n" in (workdir / "out").read_text()


def test_a_slurmdbd_that_is_away_delays_nothing(site, workdir):
    out = workdir / "out"
    job = script(workdir, "srun --aml-dist=pytorch bash -c 'echo runs; exec sleep 60'")
    site.run(f"sbatch --parsable -J away -N2 -n4 --output={out} {job}", "alice")
    wait_until(lambda: out.exists() and out.read_text().count("runs") == 4)
    site.run("pkill -STOP -x slurmdbd")
    try:
        begin = time.monotonic()
        site.run("scancel -n away")
        wait_until(lambda: "ended by Slurm" in out.read_text())
        took = time.monotonic() - begin
    finally:
        site.run("pkill -CONT -x slurmdbd")
    assert "aml-dist: ended by Slurm: the job was cancelled (scancel, or Ctrl-C in srun)\n" in out.read_text() and took < 15, out.read_text()
