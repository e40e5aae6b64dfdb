"""aml-run: keys that change the script: --stop-before, order=topology."""

import subprocess

import pytest
from test_job_file import srun_line


def test_it_becomes_the_key_of_a_command_and_of_a_job_file(aml_run, tmp_path):
    assert "--aml-dist=pytorch,stop=60@USR1 " in srun_line(aml_run.good("--dry-run", "--stop-before", "60@USR1", "--", "true").text)
    for kind in ("mpi", "pytorch"):
        path = tmp_path / f"{kind}.yml"
        path.write_text(f"command: ./train --rank $RANK\ndistribution: {{type: {kind}}}\nlimits: {{timeout: 600}}\n")
        assert f"--aml-dist={kind},stop=60 " in srun_line(aml_run.good("--dry-run", "--stop-before", "60", str(path)).text)


@pytest.mark.parametrize("arguments, said", [
    (["--stop-before", "0", "--", "x"], "--stop-before: stop='0' is not valid"),
    (["--stop-before", "5@FOO", "--", "x"], "use one of USR1"),
    (["--stop-before", "5", "--kind", "none", "--", "x"], "kind 'none' takes no keys"),
    (["--stop-before", "5", "--kind", "mpi,stop=6", "--", "x"], "key 'stop' is given twice"),
    (["--stop-before", "60", "FILE"], "this file has no distribution"),
])
def test_what_cannot_be_is_refused(aml_run, tmp_path, arguments, said):
    (tmp_path / "alone.yml").write_text("command: ./train\n")
    words = [str(tmp_path / "alone.yml") if word == "FILE" else word for word in arguments]
    assert said in aml_run.refusal(2, "--dry-run", *words)


def test_order_topology_writes_a_host_file_before_the_step(aml_run):
    text = aml_run.good("--dry-run", "--kind", "pytorch,order=topology", "-N4", "--", "python", "train.py").text
    assert text.index(' order >"$SLURM_HOSTFILE" || exit\n') < text.index("srun --"), text
    assert "--distribution=arbitrary --aml-dist=pytorch,order=topology " in srun_line(text)
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, text + done.stdout
