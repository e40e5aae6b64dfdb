"""Jobs of kind ray: what becomes of distribution's keys, and of a command line."""

from __future__ import annotations

import shlex

import pytest
from conftest import USAGE
from test_job_file import directives, script, srun_line


@pytest.mark.parametrize("more, option, words", [
    ("", "ray", ""),
    (", port: 6379, address: auto", "ray,master_port=6379", ""),
    (", address: node7", "ray,master_addr=node7", ""),
    (", address: \"node7:6379\"", "ray,master_addr=node7,master_port=6379", ""),
    (", address: \"node7:6379\", port: 7000", "ray,master_addr=node7,master_port=7000", ""),
    (", include_dashboard: false, dashboard_port: 8265", "ray", ""),
    (", include_dashboard: true", "ray", "--dashboard "),
    (", include_dashboard: true, dashboard_port: 8265", "ray", "--dashboard=8265 "),
    (", head_node_additional_args: \"--num-cpus=0 --resources='{}'\", worker_node_additional_args: --num-cpus=3", "ray",
     "\"--head-args=--num-cpus=0 --resources='{}'\" --worker-args=--num-cpus=3 "),
])
def test_ray(aml_run, job, more, option, words):
    path = job(f"command: python driver.py\ndistribution: {{type: ray{more}}}\nresources: {{instance_count: 3}}\n")
    text = script(aml_run, path)
    assert directives(text)["ntasks-per-node"] == "1" and directives(text)["nodes"] == "3"
    line = shlex.split(srun_line(text))
    assert line[1:3] == ["--kill-on-bad-exit=1", f"--aml-dist={option}"]
    assert line[3].endswith("aml-dist") and line[4:] == ["ray", *shlex.split(words), "--", "bash", "-c", "$command"]


def test_ray_from_the_command_line(aml_run, job):
    text = aml_run.good("--dry-run", "--kind", "ray", "-N2", "-c4", "--dashboard", "--", "python", "driver.py").text
    assert "--aml-dist=ray" in srun_line(text) and " ray --dashboard -- python driver.py" in text
    for command in (["aml-dist", "ray", "--keep", "--", "x"], ["ray", "symmetric-run", "--address", "a:1", "--", "x"]):
        text = aml_run.good("--dry-run", "--kind", "ray", "-N2", "-c4", "--", *command).text
        assert srun_line(text).endswith(f"--aml-dist=ray {' '.join(command)}"), "it starts Ray itself"
    assert "Ray has one CPU on each node" in aml_run.good("--dry-run", "--kind", "ray", "-N2", "--", "x").said
    assert "--dashboard is Ray's" in aml_run.refusal(USAGE, "--dry-run", "--dashboard", "--", "x")
