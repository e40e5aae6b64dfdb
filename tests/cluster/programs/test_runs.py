"""Azure ML's pipelines and sweeps on the real cluster: from a file to the end, failing and cancelled in the middle, resumed;
with values that a shell would act on."""

from __future__ import annotations

import json
import pathlib
import shlex
import time

import pytest
from cluster import READABLE


@pytest.fixture
def workdir(workdir):
    """As /tmp: aml-run keeps nothing where everybody can replace it."""
    workdir.chmod(0o1777)
    return workdir


AML_RUN = READABLE / "aml-run"

pytestmark = pytest.mark.skipif(not AML_RUN.is_file(), reason="aml-run was not built (no yaml-cpp)")

HOSTILE = "a b 'c' \"d\" $HOME `id` ä✓\nsecond; rm -rf x & (e) * #f \\ ~"


def aml_run(cluster, folder: pathlib.Path, *words: str, **options):
    return cluster.run(f"cd {shlex.quote(str(folder))} && {shlex.join([str(AML_RUN), *words])}", timeout=150, **options)


def write(folder: pathlib.Path, job: dict, name: str = "job.yml") -> str:
    (folder / name).write_text(json.dumps(job, ensure_ascii=False))  # JSON is YAML
    return name


def told(done) -> dict:
    assert done.out.startswith("{"), str(done)
    return json.loads(done.out)


def twelve_jobs(broken: bool) -> dict:
    """Three sources, a chain, a fan-out, a fan-in; job "middle" fails while the file "broken" is there."""
    def job(command: str, *needs: str) -> dict:
        return {"type": "command", "command": command, "outputs": {"o": {"type": "uri_folder"}},
                "inputs": {need: {"type": "uri_folder", "path": f"${{{{parent.jobs.{need}.outputs.o}}}}"} for need in needs}}
    def join(*needs: str) -> str:
        return f"cat {' '.join('${{inputs.' + need + '}}/x' for need in needs)} > ${{{{outputs.o}}}}/x && echo $SLURM_JOB_NAME >> ${{{{outputs.o}}}}/x"
    jobs = {f"source{i}": job(f"echo source{i} > ${{{{outputs.o}}}}/x") for i in (1, 2, 3)}
    jobs["first"] = job(join("source1", "source2"), "source1", "source2")
    jobs["middle"] = job(f"test ! -e ${{{{inputs.flag}}}} || exit 7; {join('first')}", "first")
    jobs["middle"]["inputs"]["flag"] = "${{parent.inputs.flag}}"
    for name in ("left", "right", "side"):
        jobs[name] = job(join("middle"), "middle")
    jobs["merge"] = job(join("left", "right"), "left", "right")
    jobs["apart"] = job(join("source3"), "source3")
    jobs["late"] = job("sleep 1; " + join("apart"), "apart")
    jobs["end"] = job(join("merge", "side"), "merge", "side")
    return {"type": "pipeline", "display_name": "twelve", "inputs": {"flag": "x"}, "settings": {"continue_on_step_failure": not broken},
            "jobs": jobs}


def test_a_pipeline_of_twelve_jobs_fails_in_the_middle_and_is_resumed(cluster, workdir):
    file = write(workdir, twelve_jobs(False))
    flag = workdir / "broken"
    flag.touch()
    done = aml_run(cluster, workdir, file, "--wait", "--json", "--set", f"inputs.flag={flag}")
    run = told(done)
    states = {job["name"]: job["state"] for job in run["jobs"]}
    assert len(states) == 12 and done.status == 7 and run["state"] == "failed", str(done)
    assert states["middle"] == "FAILED" and states["late"] == "COMPLETED"
    assert {name for name, state in states.items() if state == "CANCELLED"} == {"left", "right", "side", "merge", "end"}
    assert "middle ended as FAILED, exit status 7" in done.err and f"--resume {run['run']}" in done.err
    before = {job["name"]: job["job_id"] for job in run["jobs"]}

    flag.unlink()
    done = aml_run(cluster, workdir, "--resume", run["run"], "--wait", "--json")
    run = told(done)
    assert done.status == 0 and run["state"] == "completed", str(done)
    again = {job["name"] for job in run["jobs"] if job["job_id"] != before[job["name"]]}
    assert again == {"middle", "left", "right", "side", "merge", "end"}
    text = (workdir / "aml-runs" / run["run"] / "end/o/x").read_text()
    assert text.count("source1") == 3 and text.endswith(f"{run['run']}.end\n")
    assert "nothing to run again" in aml_run(cluster, workdir, "--resume", run["run"]).err


def test_a_failure_ends_the_others_if_the_pipeline_is_not_to_go_on(cluster, workdir):
    slow = {"type": "command", "command": "sleep 100"}
    file = write(workdir, {"type": "pipeline", "settings": {"continue_on_step_failure": False},
                            "jobs": {"slow": slow, "bad": {"type": "command", "command": "sleep 1; exit 3"}}})
    began = time.monotonic()
    done = aml_run(cluster, workdir, file, "--wait", "--json")
    states = {job["name"]: job["state"] for job in told(done)["jobs"]}
    assert done.status == 3 and states == {"slow": "CANCELLED", "bad": "FAILED"}, str(done)
    assert time.monotonic() - began < 60
    log = (workdir / "aml-runs/job-1/logs/bad.out").read_text()
    assert "bad failed, which ends the other jobs of job-1" in log


def test_a_pipeline_is_cancelled_as_one(cluster, workdir):
    jobs = {"a": {"type": "command", "command": "sleep 100", "outputs": {"o": {}}},
            "b": {"type": "command", "command": "true", "inputs": {"i": "${{parent.jobs.a.outputs.o}}"}}}
    file = write(workdir, {"type": "pipeline", "display_name": "to end", "jobs": jobs})
    assert aml_run(cluster, workdir, file).status == 0
    run = told(aml_run(cluster, workdir, "--show", "to-end-1", "--json"))
    assert run["state"] in ("running", "waiting")
    assert "to-end-1" in aml_run(cluster, workdir, "--list").out
    assert aml_run(cluster, workdir, "--cancel", run["jobs"][1]["job_id"]).status == 0  # any of its numbers names the run
    for _ in range(40):
        run = told(aml_run(cluster, workdir, "--show", "to-end-1", "--json"))
        if run["state"] == "cancelled":
            break
        time.sleep(0.5)
    assert {job["state"] for job in run["jobs"]} == {"CANCELLED"}, run
    again = aml_run(cluster, workdir, "--cancel", "to-end-1")
    assert again.status == 3 and "the run to-end-1 has ended (cancelled): there is nothing to cancel" in again.err, str(again)
    assert aml_run(cluster, workdir, "--cancel", "99999").status == 4  # no job has this number


def test_hostile_values_reach_the_program_as_they_are(cluster, workdir):
    """--literal: through component defaults, pipeline inputs and bound inputs to the program's arguments, byte for byte."""
    component = {"$schema": "commandComponent.schema.json", "type": "command", "name": "show",
                 "inputs": {"v": {"type": "string"}, "d": {"type": "string", "default": HOSTILE}, "none": {"type": "string", "optional": True}},
                 "outputs": {"o": {"type": "uri_folder"}},
                 "command": "printf '%s\\0' ${{inputs.v}} \"${{inputs.d}}\" $[[--none ${{inputs.none}}]] > \"${{outputs.o}}\"/args"}
    folder = workdir / "two 'words'"
    folder.mkdir()
    folder.chmod(0o1777)
    write(folder, component, "c.yml")
    file = write(folder, {"type": "pipeline", "inputs": {"p": HOSTILE}, "display_name": "$(touch evil) `x` 'y'",
                          "jobs": {"a": {"type": "command", "component": "./c.yml", "inputs": {"v": "${{parent.inputs.p}}"}}}})
    done = aml_run(cluster, folder, file, "--wait", "--literal")
    assert done.status == 0, str(done)
    args = next(folder.rglob("args")).read_bytes().split(b"\0")[:-1]
    assert args == [HOSTILE.encode()] * 2
    assert not list(folder.rglob("evil"))


SWEEP = {
    "type": "sweep", "display_name": "fifty",
    "trial": {"command": "mkdir -p \"$AML_TRIAL_FOLDER/n\"; touch \"$AML_TRIAL_FOLDER/../$SLURM_ARRAY_TASK_ID.on\"; "
                         "ls \"$AML_TRIAL_FOLDER\"/../*.on | wc -l > \"$AML_TRIAL_FOLDER/beside\"; "
                         "python3 -c 'import sys; x = float(sys.argv[1]); print(\"{\\\"loss\\\": %r}\" % ((x - 0.3) ** 2))' "
                         "${{search_space.x}} > \"$AML_METRICS_FILE\"; echo ${{search_space.kind}} ${{inputs.fixed}} > ${{outputs.model}}/kind; "
                         "sleep 0.2; rm \"$AML_TRIAL_FOLDER/../$SLURM_ARRAY_TASK_ID.on\"; test ! -e ${{inputs.stop}} || exit 5"},
    "inputs": {"fixed": "f", "stop": "/nonexistent"}, "outputs": {"model": {"type": "uri_folder"}},
    "sampling_algorithm": {"type": "random", "seed": 7},
    "search_space": {"x": {"type": "uniform", "min_value": 0, "max_value": 1}, "kind": {"type": "choice", "values": ["rbf", "ä b"]}},
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 50, "max_concurrent_trials": 4, "timeout": 600},
}


def test_a_sweep_of_fifty_trials_with_four_at_a_time(cluster, workdir):
    done = aml_run(cluster, workdir, write(workdir, SWEEP), "--wait", "--json")
    sweep = told(done)
    trials = sweep["trials"]
    assert done.status == 0 and len(trials) == 50, str(done)
    assert {trial["state"] for trial in trials} == {"COMPLETED"}
    # The best is what Python finds; every metric is that of its own parameters.
    for trial in trials:
        assert trial["metric"] == pytest.approx((float(trial["parameters"]["x"]) - 0.3) ** 2)
    assert sweep["best"]["metric"] == min(trial["metric"] for trial in trials)
    folder = pathlib.Path(sweep["folder"])
    beside = [int((folder / f"trials/{number}/beside").read_text()) for number in range(1, 51)]
    assert max(beside) <= 4, beside
    for trial in trials:
        assert pathlib.Path(trial["folder"], "model/kind").read_text() == f"{trial['parameters']['kind']} f\n"
    table = aml_run(cluster, workdir, "--show", "fifty-1").out
    assert table.count("\n") == 53 and f"best: trial {sweep['best']['trial']} " in table


def test_an_interrupted_sweep_goes_on(cluster, workdir):
    sweep = json.loads(json.dumps(SWEEP))
    sweep["limits"] = {"max_total_trials": 8, "max_concurrent_trials": 2}
    sweep["trial"]["command"] = "echo loss=${{search_space.x}} > $AML_METRICS_FILE; test ! -e ${{inputs.stop}} || sleep 100"
    stop = workdir / "stop"
    file = write(workdir, sweep)
    assert aml_run(cluster, workdir, file, "--set", f"inputs.stop={stop}").status == 0
    for _ in range(100):
        run = told(aml_run(cluster, workdir, "--show", "fifty-1", "--json"))
        if sum(trial["state"] == "COMPLETED" for trial in run["trials"]) >= 2:
            break
        time.sleep(0.3)
    stop.touch()
    assert aml_run(cluster, workdir, "--cancel", "fifty-1").status == 0
    for _ in range(60):
        run = told(aml_run(cluster, workdir, "--show", "fifty-1", "--json"))
        if run["exit_status"] is not None:
            break
        time.sleep(0.5)
    good = {trial["trial"]: trial["job_id"] for trial in run["trials"] if trial["state"] == "COMPLETED"}
    assert 2 <= len(good) < 8, run
    stop.unlink()
    done = aml_run(cluster, workdir, "--resume", "fifty-1", "--wait", "--json")
    trials = told(done)["trials"]
    assert done.status == 0 and {trial["state"] for trial in trials} == {"COMPLETED"}, str(done)
    assert all(trial["job_id"] == good[trial["trial"]] for trial in trials if trial["trial"] in good)


def test_a_bad_trial_is_ended_early(cluster, workdir):
    """The bandit policy: trial 2 reports ten times the loss of trial 1 and would run for long."""
    sweep = {**SWEEP, "display_name": "early", "sampling_algorithm": "grid", "outputs": {}, "inputs": {},
             "search_space": {"x": {"type": "choice", "values": [1, 10]}}, "limits": {"max_concurrent_trials": 2},
             "early_termination": {"type": "bandit", "slack_factor": 0.5, "evaluation_interval": 1},
             "trial": {"command": "for i in 1 2 3; do echo loss=${{search_space.x}} >> $AML_METRICS_FILE; done; "
                                  "test ${{search_space.x}} = 1 || sleep 100"}}
    done = aml_run(cluster, workdir, write(workdir, sweep), "--wait", "--json")
    first, second = told(done)["trials"]
    assert done.status == 0 and first["state"] == "COMPLETED" and second["state"] == "TERMINATED", str(done)
    assert "bandit: 10 is beyond 1.5" in second["why"]


def test_a_sweep_in_a_pipeline_hands_its_best_output_on(cluster, workdir):
    sweep = {"type": "sweep", "trial": {"type": "command", "inputs": {"x": {"type": "number"}, "name": {"type": "string"}},
                                        "outputs": {"model": {"type": "uri_folder"}},
                                        "command": "echo ${{inputs.name}}-${{inputs.x}} > ${{outputs.model}}/m; echo acc ${{inputs.x}} >> $AML_METRICS_FILE; test ${{inputs.x}} != 2"},
             "inputs": {"name": "n"}, "outputs": {"model": {}}, "sampling_algorithm": "grid",
             "search_space": {"x": {"type": "choice", "values": [1, 3, 2]}}, "objective": {"goal": "maximize", "primary_metric": "acc"}}
    use = {"type": "command", "command": "cat ${{inputs.m}}/m > ${{outputs.o}}/seen", "outputs": {"o": {}},
           "inputs": {"m": "${{parent.jobs.tune.outputs.model}}"}}
    done = aml_run(cluster, workdir, write(workdir, {"type": "pipeline", "jobs": {"tune": sweep, "use": use}}), "--wait", "--json")
    run = told(done)
    assert done.status == 0, str(done)
    assert (workdir / "aml-runs/job-1/use/o/seen").read_text() == "n-3\n"
    assert [job["name"] for job in run["jobs"]] == ["tune.trials", "tune", "use"]


def test_a_component_runs_by_itself(cluster, workdir):
    component = {"$schema": "commandComponent.schema.json", "type": "command", "name": "one", "version": 1,
                 "inputs": {"n": {"type": "integer", "default": 3, "min": 1}, "extra": {"type": "string", "optional": True}},
                 "outputs": {"o": {"type": "uri_file"}}, "command": "echo ${{inputs.n}} $[[--extra ${{inputs.extra}}]] > ${{outputs.o}}"}
    file = write(workdir, component)
    for words, expected in (([], "3\n"), (["--set", "inputs.n=5", "--set", "inputs.extra=e"], "5 --extra e\n")):
        done = aml_run(cluster, workdir, file, "--wait", "--json", *words)
        assert done.status == 0, str(done)
        assert (workdir / f"outputs/{told(done)['job_id']}/o").read_text() == expected


def test_a_missing_code_folder_ends_the_job_with_a_sentence(cluster, workdir):
    (workdir / "code").mkdir()
    file = write(workdir, {"command": "echo ran", "code": "./code"})
    done = aml_run(cluster, workdir, file, "--begin=now+3", "--json")
    (workdir / "code").rmdir()
    number = told(done)["job_id"]
    assert aml_run(cluster, workdir, "--stream", str(number)).status == 4
    log = (workdir / f"slurm-{number}.out").read_text()
    assert "the job's folder is not there on node" in log and "ran" not in log


def test_what_came_of_a_run_and_of_a_job_is_copied(cluster, workdir):
    """az ml job download: logs, outputs and trials; what is there is not written over."""
    flag = workdir / "none"
    assert aml_run(cluster, workdir, write(workdir, twelve_jobs(False)), "--wait", "--set", f"inputs.flag={flag}").status == 0
    done = aml_run(cluster, workdir, "--download", "twelve-1", "--download-path", str(workdir / "my copies"))
    copy = workdir / "my copies/twelve-1"
    assert done.status == 0 and f"copied to {copy}" in done.err, str(done)
    assert (copy / "source1/o/x").read_text() == "source1\n" and (copy / "logs/end.out").is_file()
    assert not (copy / "jobs").exists() and not (copy / "state").exists()
    again = aml_run(cluster, workdir, "--download", "twelve-1", "--download-path", str(workdir / "my copies"))
    assert again.status == 2 and "exists already" in again.err, str(again)
    job = {"command": "echo said; echo kept > ${{outputs.o}}/file", "outputs": {"o": {"type": "uri_folder"}}}
    submitted = told(aml_run(cluster, workdir, write(workdir, job), "--wait", "--json"))
    number = str(submitted["job_id"])
    done = aml_run(cluster, workdir, "--download", number)
    assert done.status == 0, str(done)
    assert (workdir / number / "outputs/o/file").read_text() == "kept\n"
    assert any("said" in file.read_text() for file in (workdir / number).iterdir() if file.is_file())
    assert aml_run(cluster, workdir, "--download", "no-such-run").status == 4


def test_runs_are_listed_shown_and_streamed(cluster, workdir):
    """az ml job list, show and stream."""
    flag = workdir / "none"
    assert aml_run(cluster, workdir, write(workdir, twelve_jobs(False)), "--set", f"inputs.flag={flag}").status == 0
    done = aml_run(cluster, workdir, "--stream", "twelve-1")
    assert done.status == 0 and "the run twelve-1 completed" in done.err, str(done)
    [run] = json.loads(aml_run(cluster, workdir, "--list", "--json").out)
    assert (run["run"], run["kind"], run["state"], run["jobs"]) == ("twelve-1", "pipeline", "completed", 12)
    assert aml_run(cluster, workdir, "--list").out.startswith("twelve-1  pipeline  completed  12 jobs  ")
    shown = told(aml_run(cluster, workdir, "--show", "twelve-1", "--json"))
    assert {job["state"] for job in shown["jobs"]} == {"COMPLETED"}
    number = next(job["job_id"] for job in shown["jobs"] if job["name"] == "middle")
    assert told(aml_run(cluster, workdir, "--show", str(number), "--json")) == shown  # a run by one of its jobs
