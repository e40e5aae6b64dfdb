"""Where a job's log lies, and what Slurm makes of the folder's name."""

from __future__ import annotations

import subprocess

import pytest
from conftest import USAGE


@pytest.mark.parametrize("name", ["a\\b", "a\nb"])
def test_a_folder_in_which_slurm_can_write_no_log(aml_run, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "job.yml").write_text("command: x\n")
    said = aml_run.refusal(USAGE, "--dry-run", "job.yml", cwd=folder)
    assert "Slurm can write no log to a folder with a backslash or a control character in its name" in said
    assert "job.out" in aml_run.good("--dry-run", "job.yml", f"--output={tmp_path}/job.out", cwd=folder).text


def test_a_code_folder_with_a_newline_is_entered_by_the_script_alone(aml_run, tmp_path):
    """No line of sbatch has a newline: Slurm would look for another folder, and start in /tmp."""
    (tmp_path / "co\nde").mkdir()
    (tmp_path / "job.yml").write_text('command: x\ncode: "co\\nde"\n')
    text = aml_run.good("--dry-run", "job.yml", cwd=tmp_path).text
    assert "#SBATCH --chdir" not in text
    assert subprocess.run(["bash", "-c", text.replace("srun", "pwd; true")], capture_output=True, check=True).stdout.decode() == f"{tmp_path}/co\nde\n"


def test_output_in_a_folder_with_a_percent_sign_is_followed(aml_run, slurm, job, tmp_path):
    """scontrol of Slurm before 24.11 shows "%%"; the file's folder has one "%"."""
    folder = tmp_path / "100% sure"
    folder.mkdir()
    (folder / "slurm-17.out").write_text("what the job wrote\n")
    shown = str(folder).replace("%", "%%%%")
    slurm.program("sbatch", "cat > /dev/null; echo 17")
    slurm.program("scontrol", f"printf 'JobId=17\\n   JobState=COMPLETED Reason=None\\n   ExitCode=0:0\\n   StdOut={shown}/slurm-17.out\\n'")
    done = aml_run.good("--wait", job("command: a"), env=slurm.env)
    assert "what the job wrote" in done.text
