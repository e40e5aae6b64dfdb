"""Folders in which others may write: what somebody else has put there first is not believed, and not written through.

The other user is uid 65534, so these tests are root's."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from conftest import FAILED, NOT_FOUND

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
OTHER = 65534
UID = os.getuid()


def give_away(path: pathlib.Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, OTHER, OTHER, follow_symlinks=False)


def foreign(path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """A folder of the other user's."""
    path.mkdir(parents=True)
    give_away(path)


def link(path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """A link of the other user's to a folder of the victim's, who would own what is found behind it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def writable(path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    """A folder of the victim's in which others can replace everything."""
    path.mkdir(parents=True)
    path.chmod(0o777)


def fifo(path: pathlib.Path, elsewhere: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    os.chown(path, OTHER, OTHER)


ATTACKS = [foreign, link, writable, fifo]
SAID = ("belongs to user 65534", "links are not followed", "other users can change the files in")


@pytest.fixture
def shared(tmp_path):
    """As /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def table(tmp_path):
    def write(text: str) -> list[str]:
        (tmp_path / "table.yml").write_text(text)
        return ["--dry-run", "--instance-types", str(tmp_path / "table.yml")]

    return write


def run_script(slurm, script: str, folder, job: str = "7") -> subprocess.CompletedProcess:
    env = {**slurm.env, "SLURM_JOB_ID": job, "HOME": str(folder)}
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=30, check=False)


def is_refused(done: subprocess.CompletedProcess) -> bool:
    return done.returncode != 0 and any(each in done.stderr for each in SAID)


# ------------------------------------------------------------------------------------------------- downloads and conda files


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("component", [f"{UID}", f"{UID}/example.org", f"{UID}/example.org/a"])
def test_a_download_is_not_taken_from_a_folder_of_somebody_elses(aml_run, job, table, slurm, tmp_path, shared, elsewhere, component, attack):
    slurm.program("srun", 'while [[ $1 != bash ]]; do shift; done; exec "$@"')
    slurm.program("curl", 'while [[ $1 != --output ]]; do shift; done; echo data >"$2"')
    attack(shared / component, elsewhere)
    target = elsewhere if attack is link else shared / component
    if attack is not fifo:  # what the job would unpickle
        bait = target / f"{UID}/example.org/a/b.csv".removeprefix(component + "/")
        bait.parent.mkdir(parents=True, exist_ok=True)
        bait.write_text("evil\n")
    text = "command: cat ${{inputs.x}}\ninputs:\n  x: {type: uri_file, path: 'https://example.org/a/b.csv'}\n"
    done = run_script(slurm, aml_run.good(*table(f"downloads: {{folder: {shared}}}\n"), job(text)).text, tmp_path)
    assert is_refused(done) and "evil" not in done.stdout, done


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_environment_is_not_made_in_a_folder_of_somebody_elses(aml_run, job, table, slurm, tmp_path, shared, elsewhere, attack):
    slurm.program("srun", "touch started")
    slurm.program("micromamba", 'while [[ $1 != -p ]]; do shift; done; mkdir -p "$2/bin"')
    attack(shared / str(UID), elsewhere)
    text = "command: x\nenvironment: {image: u, conda_file: {dependencies: [pip]}}\n"
    done = run_script(slurm, aml_run.good(*table(f"conda: {{by: micromamba, folder: {shared}}}\n"), job(text)).text, tmp_path)
    assert is_refused(done) and not slurm.written("started") and not [*elsewhere.iterdir()], done


def test_a_shared_folder_needs_its_sticky_bit(aml_run, job, table, slurm, tmp_path, shared):
    """Without it anybody can rename the user's folder away and put another there, however well it was looked at."""
    slurm.program("srun", "true")
    shared.chmod(0o777)
    text = "command: x\nenvironment: {image: u, conda_file: {dependencies: [pip]}}\n"
    done = run_script(slurm, aml_run.good(*table(f"conda: {{by: micromamba, folder: {shared}}}\n"), job(text)).text, tmp_path)
    assert done.returncode != 0 and "set its sticky bit" in done.stderr, done


# ------------------------------------------------------------------------------------------------------ runs and snapshots

SWEEP = {"type": "sweep", "trial": {"command": "x"}, "search_space": {"q": {"type": "choice", "values": [1]}}, "sampling_algorithm": "grid",
         "objective": {"goal": "minimize", "primary_metric": "m"}, "display_name": "r"}
PIPELINE = {"type": "pipeline", "display_name": "r", "jobs": {"a": {"type": "command", "command": "echo good"}}}


def submitting(slurm) -> None:
    slurm.program("sbatch", "cat >>script; echo 17")
    slurm.program("scontrol", "echo JobId=17 JobState=PENDING")
    slurm.program("squeue", "echo '17|FAILED|None|n|0'")
    slurm.program("scancel", "true")


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("file", [PIPELINE, SWEEP], ids=["pipeline", "sweep"])
def test_a_run_is_not_kept_in_a_folder_of_somebody_elses(aml_run, slurm, shared, elsewhere, file, attack):
    submitting(slurm)
    attack(shared / "aml-runs", elsewhere)
    (shared / "job.yml").write_text(json.dumps(file))
    said = aml_run.refusal(FAILED, "job.yml", cwd=shared, env=slurm.env)
    assert any(each in said for each in SAID) and not slurm.written("script") and not [*elsewhere.iterdir()]


@pytest.mark.parametrize("attack", ATTACKS)
def test_code_is_not_copied_to_a_folder_of_somebody_elses(aml_run, slurm, shared, elsewhere, attack):
    submitting(slurm)
    attack(shared / "aml-runs", elsewhere)
    (shared / "src").mkdir()
    (shared / "src/train.py").write_text("secret")
    (shared / "job.yml").write_text(json.dumps({"command": "x", "code": "./src"}))
    said = aml_run.refusal(FAILED, "--snapshot", "job.yml", cwd=shared, env=slurm.env)
    assert any(each in said for each in SAID) and not slurm.written("script") and not [*elsewhere.iterdir()]


@pytest.mark.parametrize("part", ["aml-runs", "aml-runs/r-1", "aml-runs/r-1/jobs"])
def test_scripts_of_somebody_elses_are_not_submitted_again(aml_run, slurm, shared, part):
    submitting(slurm)
    (shared / "job.yml").write_text(json.dumps(PIPELINE))
    aml_run.good("job.yml", cwd=shared, env=slurm.env)
    (slurm.folder / "script").unlink()
    (shared / "aml-runs/r-1/jobs/a.sh").write_text("#!/bin/bash\necho evil\n")
    give_away(shared / part)
    done = aml_run.run("--resume", "r-1", cwd=shared, env=slurm.env)
    assert "evil" not in slurm.written("script") and done.status != 0, done
    for words in (["--show", "r-1"], ["--list"], ["--show", str(shared / "aml-runs/r-1")]):
        if part == "aml-runs":
            assert "belongs to user 65534" in aml_run.refusal(FAILED, *words, cwd=shared, env=slurm.env)


@pytest.mark.parametrize("part", ["aml-runs", "aml-runs/r-1", "aml-runs/r-1/trials/1"])
def test_a_trial_does_not_begin_in_a_folder_of_somebody_elses(aml_run, slurm, shared, part):
    submitting(slurm)
    (shared / "job.yml").write_text(json.dumps(SWEEP))
    aml_run.good("job.yml", cwd=shared, env=slurm.env)
    slurm.program("srun", "touch started")
    give_away(shared / part)
    env = {**slurm.env, "SLURM_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "17"}
    done = subprocess.run(["bash", "-c", slurm.written("script")], cwd=shared, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert is_refused(done) and not slurm.written("started"), done


def test_a_file_of_a_run_is_written_under_a_name_that_nobody_can_guess(aml_run, slurm, tmp_path):
    """Its name was run.json.PID, opened with O_TRUNC through links."""
    submitting(slurm)
    (tmp_path / "job.yml").write_text(json.dumps(PIPELINE))
    aml_run.good("job.yml", cwd=tmp_path, env=slurm.env)
    victim = tmp_path / "victim"
    victim.write_text("kept")
    # exec keeps the process: bash's $$ is aml-run's number.
    done = subprocess.run(["bash", "-c", 'ln -s "$PWD/victim" "aml-runs/r-1/run.json.$$"; exec "$0" --resume r-1', aml_run.path], cwd=tmp_path,
                          env=slurm.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and victim.read_text() == "kept", done


# ---------------------------------------------------------------------------------------------------------------- records


def plant_link(path: pathlib.Path, victim: pathlib.Path) -> None:
    path.symlink_to(victim)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def plant_hard_link(path: pathlib.Path, victim: pathlib.Path) -> None:
    os.link(victim, path)


def plant_fifo(path: pathlib.Path, victim: pathlib.Path) -> None:
    os.mkfifo(path)
    os.chown(path, OTHER, OTHER)


def plant_file(path: pathlib.Path, victim: pathlib.Path) -> None:
    path.write_text("job 7 0\n")
    os.chown(path, OTHER, OTHER)


@pytest.mark.parametrize("plant", [plant_link, plant_hard_link, plant_fifo, plant_file])
def test_a_record_is_not_written_into_a_file_that_somebody_has_put_there(aml_run, slurm, tmp_path, shared, plant):
    """The job's number can be guessed, and so its record's name. The job itself runs."""
    slurm.program("sbatch", "cat >script; echo 7")
    slurm.program("srun", "touch started; exit 3")
    slurm.program("scontrol", "printf 'JobId=7\\n   JobState=COMPLETED Reason=None\\n   ExitCode=0:0\\n   StdOut=/dev/null\\n'")
    aml_run.good("--wait", "--", "x", cwd=shared, env=slurm.env)
    victim = tmp_path / "victim"
    victim.write_text("kept")
    record = shared / ".aml-run-7"
    plant(record, victim)
    done = run_script(slurm, slurm.written("script"), shared)
    assert done.returncode == 3 and (slurm.folder / "started").exists() and victim.read_text() == "kept", done
    assert "how the job ends is not recorded" in done.stderr
    if plant is plant_file:
        assert record.read_text() == "job 7 0\n"


def test_a_record_that_somebody_else_wrote_is_not_believed(aml_run, slurm, shared):
    slurm.program("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    slurm.program("sacct", "exit 1")
    record = shared / ".aml-run-7"
    record.write_text("job 7 0\nended 0\n")
    assert aml_run.run("--stream", "7", cwd=shared, env=slurm.env).status == 0
    record.write_text("job 7 0\nended 0\n")
    os.chown(record, OTHER, OTHER)
    assert aml_run.run("--stream", "7", cwd=shared, env=slurm.env).status == NOT_FOUND
