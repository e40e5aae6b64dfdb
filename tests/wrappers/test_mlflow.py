"""MLflow's variables in the scripts of job files."""

from __future__ import annotations

import subprocess


def test_mlflow_finds_a_store(aml_run, job, slurm):
    """The lines are run, as what counts is what the program sees."""
    def seen(text, **environment):
        path = job("command: x\n" + text)
        lines = aml_run.good("--dry-run", path).text
        slurm.program("srun", 'echo "$MLFLOW_TRACKING_URI|$MLFLOW_EXPERIMENT_NAME"')
        done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True, cwd=slurm.folder,
                              env={**slurm.env, **environment})
        return done.stdout.strip()

    here = f"{slurm.folder}/mlruns"
    assert seen("") == f"{here}|"
    assert seen("experiment_name: two words $HOME\n") == f"{here}|two words $HOME"
    assert seen("", MLFLOW_TRACKING_URI="http://own:5000") == "http://own:5000|"
    assert seen("environment_variables: {MLFLOW_TRACKING_URI: file:///x}\n", MLFLOW_TRACKING_URI="y") == "file:///x|"
    assert seen("experiment_name: a\nenvironment_variables: {MLFLOW_EXPERIMENT_NAME: b}\n") == f"{here}|b"


def test_the_jobs_of_a_pipeline_log_to_its_experiment(aml_run, job):
    path = job("type: pipeline\nexperiment_name: one two\njobs:\n  a: {command: x}\n  b: {command: y, experiment_name: own}\n"
               "  c: {type: sweep, trial: {command: z}, search_space: {q: {type: choice, values: [1]}}, sampling_algorithm: grid,"
               " objective: {goal: minimize, primary_metric: m}}\n")
    text = aml_run.good("--dry-run", path).text
    assert text.count('export MLFLOW_EXPERIMENT_NAME=\'one two\'\n') == 2 and "export MLFLOW_EXPERIMENT_NAME=own\n" in text
