"""Lines of Azure's command line, as its documents have them, behind aml-run."""

from __future__ import annotations

import pytest
from conftest import USAGE

JOB = "command: python train.py\ninputs: {lr: 0.1, n: 2}\n"


@pytest.mark.parametrize("line, own", [
    ("az ml job create --file {job}", "{job}"), ("az ml job create -f {job} --stream", "{job} --wait"),
    ("ml job create -f {job} --set inputs.lr=0.5 inputs.n=3 --no-wait", "{job} --set inputs.lr=0.5 --set inputs.n=3"),
    ("job create --file={job} --name first -N4", "{job} --set name=first -N4"),
    ("az ml job create -f {job} --only-show-errors -o json --partition gpu", "{job} --json --partition gpu")])
def test_a_line_of_az_is_read_as_it_is(aml_run, job, line, own):
    path = job(JOB)
    done = aml_run.good("--dry-run", *own.format(job=path).split())
    same = aml_run.good(*line.format(job=path).split(), "--dry-run")
    assert same.text == done.text and same.said == done.said


def test_what_a_workspace_is_for_is_said_once(aml_run, job):
    done = aml_run.good("az", "ml", "job", "create", "-f", job(JOB), "--web", "-g", "rg", "-w", "ws", "--subscription", "s", "--dry-run")
    assert done.said.splitlines() == ["aml-dist: --web is ignored: a job here has no web page",
                                      "aml-dist: --resource-group is ignored: there is no workspace: the job goes to this cluster of Slurm"]


@pytest.mark.parametrize("line, said", [
    ("az ml job", "az ml job needs a verb: use create, show"), ("az ml job archive -n x", "az ml job 'archive' is not done here: use create"),
    ("az ml job show", "which job?"), ("az ml job create -f", "--file needs a value"), ("az ml job create", "give a job file"),
    ("az ml job create -f x.yml --query name -o tsv", "--query is not supported here: --json prints an object"),
    ("az ml job create -f x.yml -o table", "--output table: use json"), ("az ml job create -f x.yml --save-as y", "--save-as is not supported here"),
    ("az ml job create -f x.yml --foo", "unknown option '--foo'"), ("az ml job show -n a x.yml", "give no job with it"),
    ("--file x.yml", "'--file' is an option of az"), ("x.yml --web", "'--web' is an option of az: write aml-run job create in front of it"),
    ("x.yml -g rg", "'-g' is an option of az"), ("x.yml --stream 1", "--wait follows a job that is started")])
def test_wrong_lines_of_az_are_answered(aml_run, line, said):
    assert said in aml_run.refusal(USAGE, *line.split())


def test_the_other_verbs_of_az(aml_run, tmp_path):
    for verb, words in [("show -n 77", "--show 77"), ("cancel --name 77", "--cancel 77"),
                        ("download -n 77 --all -p out", "--download 77 --download-path out"), ("list", "--list")]:
        theirs, ours = [aml_run.run(*line.split(), env={"PATH": "/nowhere"}, cwd=tmp_path) for line in (f"az ml job {verb}", words)]
        assert (theirs.status, theirs.out, theirs.err) == (ours.status, ours.out, ours.err), (str(theirs), str(ours))
