"""Pipelines, components, sweeps and snapshots without Slurm: what the scripts say, and everything that can be wrong in a
file."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess

import pytest
from conftest import NOT_FOUND, USAGE


def write(folder: pathlib.Path, job: dict, name: str = "job.yml") -> str:
    (folder / name).write_text(json.dumps(job))
    return str(folder / name)


def plan(aml_run, folder: pathlib.Path, job: dict, *words: str) -> dict:
    return json.loads(aml_run.good("--dry-run", "--json", write(folder, job), *words, cwd=folder).out)


def trials(told: dict) -> dict[str, list[str]]:
    """The values of each parameter, as bash reads them from the script."""
    script = told["jobs"][0]["script"]
    out = {}
    for name in re.findall(r"^AML_PARAMETER_(\w+)_of=", script, re.M):
        line = re.search(rf"^AML_PARAMETER_{name}_of=\(.*?\)\n(?=AML_PARAMETER_{name}=)", script, re.M | re.S).group(0)
        done = subprocess.run(["bash", "-c", line + f'printf "%s\\0" "${{AML_PARAMETER_{name}_of[@]:1}}"'], capture_output=True, check=True)
        out[name] = done.stdout.decode().split("\0")[:-1]
    return out


# -------------------------------------------------------------------------------------------------------------- pipelines

COMMAND = {"type": "command", "command": "x ${{inputs.i}}", "outputs": {"o": {}}}


def chain(**more) -> dict:
    return {"type": "pipeline", "jobs": {"b": {**COMMAND, "inputs": {"i": "${{parent.jobs.a.outputs.o}}"}},
                                         "a": {**COMMAND, "inputs": {"i": "${{parent.inputs.p}}"}}}, "inputs": {"p": "v"}, **more}


CLOUD = {"type": "uri_file", "path": "azureml:data@latest"}


@pytest.mark.parametrize("change, key, what", [
    ({"inputs": {"p": CLOUD}}, "inputs.p.path", "FILE"),
    ({"inputs": {"p": "azureml:data@latest"}}, "inputs.p.path", "FOLDER"),
    ({"jobs": {"a": {**COMMAND, "inputs": {"i": CLOUD}}}}, "jobs.a.inputs.i.path", "FILE"),
])
def test_an_input_out_of_reach_names_the_key_that_mends_it(aml_run, tmp_path, change, key, what):
    file = write(tmp_path, chain(**change))
    assert f"add --set {key}={what}" in aml_run.refusal(NOT_FOUND, "--dry-run", file, cwd=tmp_path)
    aml_run.good("--dry-run", file, "--set", f"{key}={tmp_path}", "--set", f"{key.removesuffix('.path')}.type=uri_folder", cwd=tmp_path)


def test_jobs_come_behind_those_that_they_need(aml_run, tmp_path):
    told = plan(aml_run, tmp_path, chain(display_name="My run!"))
    assert [(job["name"], job["needs"]) for job in told["jobs"]] == [("a", []), ("b", ["a"])]
    assert told["run"] == "My-run-1" and not (tmp_path / "aml-runs").exists()
    first, second = (job["script"] for job in told["jobs"])
    assert "inputs.i=v" in first or "'x v'" in first
    assert f"command='x {tmp_path}/aml-runs/My-run-1/a/o'" in second
    # What Azure ML does if nobody says: the jobs that need nothing of the failed one go on.
    assert "--stop-run" not in first
    assert "--stop-run" in plan(aml_run, tmp_path, chain(settings={"continue_on_step_failure": False}))["jobs"][0]["script"]


def test_a_job_with_a_host_file_still_ends_its_run(aml_run, tmp_path):
    """bash keeps one trap on EXIT: the one that removes the host file replaced the one that stops the other jobs."""
    job = {**COMMAND, "inputs": {"i": "v"}, "distribution": {"type": "pytorch"}}
    file = chain(jobs={"a": job}, settings={"continue_on_step_failure": False})
    script = plan(aml_run, tmp_path, file, "--kind=pytorch,order=topology")["jobs"][0]["script"]
    last = re.findall(r"^trap .* EXIT$", script, re.M)[-1]
    assert 'rm -f "$SLURM_HOSTFILE"' in last and "--stop-run" in last


def test_a_failed_job_ends_its_run_also_where_the_tool_has_blanks_in_its_path(aml_run, slurm, tmp_path):
    own = tmp_path / "it's a place/aml-run"
    own.parent.mkdir()
    shutil.copy(aml_run.path, own)
    file = write(tmp_path, chain(settings={"continue_on_step_failure": False}))
    done = subprocess.run([own, "--dry-run", "--json", file], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    (line,) = re.findall(r"^trap .*(?:\n.*)*? EXIT$", json.loads(done.stdout)["jobs"][0]["script"], re.M)
    own.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')  # from here on only what it is called with counts
    ended = subprocess.run(["bash", "-c", f"run_folder=/run\n{line}\nexit 3"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "--stop-run\n/run\na\n", "")


def test_the_tier_of_a_pipeline_is_that_of_its_jobs(aml_run, tmp_path):
    jobs = {"a": {"type": "command", "command": "x"}, "b": {"type": "command", "command": "x", "queue_settings": {"job_tier": "Standard"}}}
    told = plan(aml_run, tmp_path, {"type": "pipeline", "queue_settings": {"job_tier": "Spot"}, "jobs": jobs})
    assert ["#SBATCH --requeue" in job["script"] for job in told["jobs"]] == [True, False]


def test_a_pipeline_in_a_pipeline_is_written_out(aml_run, tmp_path):
    inner = {"type": "pipeline", "inputs": {"i": {"type": "uri_folder"}}, "outputs": {"o": {"type": "uri_folder"}},
             "jobs": {"one": {**COMMAND, "inputs": {"i": "${{parent.inputs.i}}"}},
                      "two": {**COMMAND, "inputs": {"i": "${{parent.jobs.one.outputs.o}}"}, "outputs": {"o": "${{parent.outputs.o}}"}}}}
    write(tmp_path, inner, "inner.yml")
    told = plan(aml_run, tmp_path, {"type": "pipeline", "jobs": {
        "first": {"type": "command", "command": "x", "outputs": {"o": {}}},
        "sub": {"type": "pipeline", "component": "./inner.yml", "inputs": {"i": "${{parent.jobs.first.outputs.o}}"}},
        "last": {**COMMAND, "inputs": {"i": "${{parent.jobs.sub.outputs.o}}"}}}})
    needs = {job["name"]: job["needs"] for job in told["jobs"]}
    assert needs == {"first": [], "sub.one": ["first"], "sub.two": ["first", "sub.one"], "last": ["sub.one", "sub.two"]}
    scripts = {job["name"]: job["script"] for job in told["jobs"]}
    path = f"{tmp_path}/aml-runs/job-1/sub/o"
    assert f"AML_OUTPUT_o={path}\n" in scripts["sub.two"] and f"'x {path}'" in scripts["last"]


def test_a_job_gives_what_its_component_leaves_empty(aml_run, tmp_path):
    """"environment_variables:" with nothing below it is no value, and hid the job's."""
    component = {"type": "command", "command": "x", "environment_variables": None, "resources": {"instance_count": None},
                 "distribution": {"type": "pytorch", "process_count_per_instance": None}}
    write(tmp_path, component, "component.yml")
    job = {"component": "./component.yml", "environment_variables": {"A": "b"}, "resources": {"instance_count": 2},
           "distribution": {"process_count_per_instance": 4}}
    script = plan(aml_run, tmp_path, {"type": "pipeline", "jobs": {"one": job}})["jobs"][0]["script"]
    assert "export A=b\n" in script and "#SBATCH --nodes=2\n" in script and "#SBATCH --ntasks-per-node=4\n" in script


def test_a_pipeline_job_may_only_name_a_component(aml_run, tmp_path):
    """Its inputs win over the component's, whose paths are relative to the component's file."""
    (tmp_path / "sub/src").mkdir(parents=True)
    inputs = {"d": {"type": "uri_folder", "path": "./src"}, "n": {"type": "integer", "default": 1}, "k": {"type": "integer", "default": 7}}
    job = {**COMMAND, "code": "./src", "command": "x ${{inputs.d}} ${{inputs.n}} ${{inputs.k}}",
           "inputs": {name: "${{parent.inputs.%s}}" % name for name in inputs}, "outputs": {"o": "${{parent.outputs.r}}"}}
    write(tmp_path, {"type": "pipeline", "inputs": inputs, "outputs": {"r": {"type": "uri_folder"}}, "jobs": {"one": job}}, "sub/whole.yml")
    file = {"type": "pipeline", "component": "./sub/whole.yml", "inputs": {"n": 2}, "outputs": {"r": {"mode": "upload"}}}
    told = plan(aml_run, tmp_path, file)
    script = told["jobs"][0]["script"]
    assert [job["name"] for job in told["jobs"]] == ["one"] and f"cd -- {tmp_path}/sub/src" in script
    assert f"x {tmp_path}/sub/src 2 7" in script
    assert f"AML_OUTPUT_o={told['folder']}/outputs/r\n" in script
    assert f"x {tmp_path}/sub/src 2 9" in aml_run.good("--dry-run", "--set", "inputs.k=9", write(tmp_path, file)).text
    assert "not both" in aml_run.refusal(USAGE, "--dry-run", write(tmp_path, {**file, "jobs": {"one": COMMAND}}))


@pytest.mark.parametrize("change, place, said", [
    ({"jobs": {}}, None, "a pipeline has jobs"),
    ({"jobbs": 1}, None, "did you mean 'jobs'?"),
    ({"jobs": {"a": {**COMMAND, "inputs": {"i": "${{parent.inputs.q}}"}}}}, None, "did you mean p?"),
    ({"jobs": {"a": {**COMMAND, "inputs": {"i": "${{parent.jobs.z.outputs.o}}"}}}}, None, "names no job of the pipeline"),
    ({"jobs": {"a": {**COMMAND, "inputs": {"i": "${{parent.jobs.a.outputs.o}}"}}}}, None, "depend on each other in a cycle"),
    ({"jobs": {"a": {"type": "comand", "command": "x"}}}, None, "use command, sweep or pipeline"),
    ({"jobs": {"a b": COMMAND}}, None, "letters, digits and _"),
    ({"settings": {"continue_on_step_failure": "perhaps"}}, None, "use true or false"),
    *[({"jobs": {"a": {"type": kind}}}, None, f"type {kind} is not supported") for kind in
      ("parallel", "automl", "import", "finetuning", "spark", "data_transfer")],
])
def test_wrong_pipelines(aml_run, tmp_path, change, place, said):
    assert said in aml_run.refusal(USAGE, "--dry-run", write(tmp_path, {**chain(), **change}))


def test_a_registered_component_is_refused_with_the_remedy(aml_run, tmp_path):
    path = write(tmp_path, {"type": "pipeline", "jobs": {"t": {"component": "azureml:my_train@latest"}}})
    assert "give its file, such as --set jobs.t.component=component.yml" in aml_run.refusal(NOT_FOUND, "--dry-run", path)
    write(tmp_path, {"type": "command", "command": "ran"}, "c.yml")
    assert "command=ran" in aml_run.good("--dry-run", path, "--set", "jobs.t.component=c.yml").text


# -------------------------------------------------------------------------------------------------------------- components


@pytest.mark.parametrize("command, refused", [
    ("run --data ${{inputs.o}}", True), ("run [--data ${{inputs.o}}]", True), ("run $[[--n 1]] ${{inputs.o.path}}", True),
    ("run $[[--data ${{inputs.o}}]]", False), ("run ${{inputs.n}}", False)])
@pytest.mark.parametrize("given", [[], ["--set", "inputs.o=x"]])
def test_an_optional_input_outside_of_its_brackets_is_refused_as_azure_does(aml_run, tmp_path, command, refused, given):
    path = write(tmp_path, component(n={"type": "integer", "default": 3}, o={"type": "string", "optional": True}) | {"command": command})
    if not refused:
        aml_run.good("--dry-run", path, *given)
        return
    said = aml_run.refusal(USAGE, "--dry-run", path, *given)
    assert "is optional, and stands outside of $[[...]]: write $[[--o ${{inputs.o" in said


def component(**inputs) -> dict:
    return {"$schema": "https://x/commandComponent.schema.json", "name": "c", "inputs": inputs,
            "command": "x $[[--o ${{inputs.o}}]] ${{inputs.n}}"}


@pytest.mark.parametrize("words, command", [
    ([], "x  3"), (["--set", "inputs.o=7"], "x --o 7 3"), (["--set", "inputs.n=4"], "x  4"),
])
def test_defaults_and_optional_inputs(aml_run, tmp_path, words, command):
    path = write(tmp_path, component(n={"type": "integer", "default": 3}, o={"type": "string", "optional": True}))
    text = aml_run.good("--dry-run", path, *words).text
    assert f"command='{command}'" in text and "inputs.o:" not in text  # not named among what has no effect


@pytest.mark.parametrize("declared, value, said", [
    ({"type": "integer"}, "1.5", "use a whole number"), ({"type": "number"}, "x", "use a number"),
    ({"type": "boolean"}, "1", "use true or false"), ({"type": "integer", "min": 2}, "1", "the minimum is 2"),
    ({"type": "number", "max": 2}, "2.5", "the maximum is 2"), ({"type": "enum", "enum": ["a", "b"]}, "c", "use one of a, b"),
    ({"type": "integer"}, None, "add --set inputs.n=VALUE"),
])
def test_values_are_held_against_the_declaration(aml_run, tmp_path, declared, value, said):
    path = write(tmp_path, component(n=declared, o={"type": "string", "optional": True}))
    assert said in aml_run.refusal(USAGE, "--dry-run", path, *(["--set", f"inputs.n={value}"] if value else []))
    assert "did you mean 'n'?" in aml_run.refusal(USAGE, "--dry-run", path, "--set", "inputs.nn=1", "--set", "inputs.n=1")


# ------------------------------------------------------------------------------------------------------------------ sweeps


def sweep(space: dict, count: int = 10, sampling: object = "random", **more) -> dict:
    return {"type": "sweep", "trial": {"command": "x " + " ".join("${{search_space." + name + "}}" for name in space)}, "search_space": space,
            "sampling_algorithm": sampling, "objective": {"goal": "minimize", "primary_metric": "loss"}, "limits": {"max_total_trials": count}, **more}


def test_a_grid_is_every_combination(aml_run, tmp_path):
    values = ["a b", "$x 'q'", 3, True, "ä\n\"", [1, {"k": 2}]]
    told = plan(aml_run, tmp_path, sweep({"p": {"type": "choice", "values": values}, "q": {"type": "choice", "values": [1, 2]}}, 99, "grid",
                                         limits={"max_concurrent_trials": 4}))
    assert told["jobs"][0]["trials"] == 12 and told["jobs"][0]["concurrent"] == 4
    texts = ["a b", "$x 'q'", "3", "True", "ä\n\"", '[1,{"k":2}]']
    assert trials(told) == {"p": [text for text in texts for _ in (1, 2)], "q": ["1", "2"] * 6}


def test_the_seed_decides(aml_run, tmp_path):
    space = {"x": {"type": "uniform", "min_value": 0, "max_value": 1}}
    first, again, other = (trials(plan(aml_run, tmp_path, sweep(space, 20, {"type": "random", "seed": seed}))) for seed in (1, 1, 2))
    assert first == again != other


NORMAL = statistics.NormalDist()
DISTRIBUTIONS = [
    ({"type": "uniform", "min_value": -2, "max_value": 3}, lambda x: (x + 2) / 5),
    ({"type": "loguniform", "min_value": -3, "max_value": 1}, lambda x: (math.log(x) + 3) / 4),
    ({"type": "normal", "mu": 2, "sigma": 3}, lambda x: NORMAL.cdf((x - 2) / 3)),
    ({"type": "lognormal", "mu": -1, "sigma": 0.5}, lambda x: NORMAL.cdf((math.log(x) + 1) / 0.5)),
]


@pytest.mark.parametrize("space, share", DISTRIBUTIONS, ids=lambda each: each["type"] if isinstance(each, dict) else "")
def test_values_are_spread_as_the_distribution_says(aml_run, tmp_path, space, share):
    """Kolmogorov and Smirnov's distance of 2,000 values from the distribution function, at a chance of one in a million."""
    values = sorted(float(value) for value in trials(plan(aml_run, tmp_path, sweep({"x": space}, 2000)))["x"])
    distance = max(max(abs(share(x) - i / 2000), abs(share(x) - (i + 1) / 2000)) for i, x in enumerate(values))
    assert distance < 2.7 / math.sqrt(2000), distance


@pytest.mark.parametrize("space", [
    {"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.1}, {"type": "qnormal", "mu": 0, "sigma": 5, "q": 0.25},
    {"type": "qloguniform", "min_value": 0, "max_value": 5, "q": 2}, {"type": "qlognormal", "mu": 1, "sigma": 1, "q": 5}, {"type": "randint", "upper": 7}])
def test_rounded_values(aml_run, tmp_path, space):
    texts = trials(plan(aml_run, tmp_path, sweep({"x": space}, 300)))["x"]
    quantum = space.get("q", 1)
    assert all(abs(float(text) / quantum - round(float(text) / quantum)) < 1e-9 and len(text) < 8 for text in texts), texts
    if space["type"] == "randint":
        assert set(texts) == {str(number) for number in range(7)}


def test_sobol_is_the_sequence_of_joe_and_kuo(aml_run, tmp_path):
    """Against SciPy where it is installed, else against points that it gave."""
    dimensions, count = 21, 128
    space = {f"x{i}": {"type": "uniform", "min_value": 0, "max_value": 1} for i in range(dimensions)}
    told = trials(plan(aml_run, tmp_path, sweep(space, count - 1, "sobol")))
    points = [[float(told[f"x{i}"][k]) for i in range(dimensions)] for k in range(count - 1)]
    assert points[0] == [0.5] * dimensions
    assert points[1][:5] == [0.75, 0.25, 0.25, 0.25, 0.75] and points[2][:5] == [0.25, 0.75, 0.75, 0.75, 0.25]
    for column in zip(*points, strict=True):  # with the point of zeros each is a permutation of the 128ths
        assert sorted(column) == [k / count for k in range(1, count)]
    qmc = pytest.importorskip("scipy.stats.qmc", reason="SciPy is not installed")
    assert points == qmc.Sobol(dimensions, scramble=False).random(count)[1:].tolist()


@pytest.mark.parametrize("change, said", [
    ({"sampling_algorithm": "bayesian"}, "bayesian is not supported"),
    ({"sampling_algorithm": "best"}, "use grid, random or sobol"),
    ({"sampling_algorithm": "grid"}, "is not a choice, and a grid has choices only"),
    ({"limits": {}}, "max_total_trials is not given"),
    ({"limits": {"max_total_trials": 0}}, "use a whole number"),
    ({"objective": {"goal": "less", "primary_metric": "l"}}, "use minimize or maximize"),
    ({"objective": {"goal": "minimize"}}, "no primary_metric"),
    ({"trial": None}, "a sweep has a trial"),
    ({"search_space": {}}, "search_space is empty"),
    ({"search_space": {"x": {"type": "uniforn", "min_value": 0, "max_value": 1}}}, "did you mean 'uniform'?"),
    ({"search_space": {"x": {"type": "uniform", "min_value": 1, "max_value": 0}}}, "not below max_value"),
    ({"search_space": {"x": {"type": "uniform", "min_value": 1}}}, "needs max_value, a number"),
    ({"search_space": {"x": {"type": "choice", "values": []}}}, "a choice without values"),
    ({"search_space": {"x": {"type": "normal", "mu": 1, "sigma": 0}}}, "sigma that is not above 0"),
    ({"early_termination": {"type": "bandit"}}, "one of slack_factor and slack_amount"),
    ({"early_termination": {"type": "median"}}, "use bandit, median_stopping or truncation_selection"),
    ({"early_termination": {"type": "truncation_selection", "truncation_percentage": 100}}, "1 to 99"),
    ({"trails": 1}, "did you mean 'trial'?"),
])
def test_wrong_sweeps(aml_run, tmp_path, change, said):
    job = sweep({"x": {"type": "uniform", "min_value": 0, "max_value": 1}})
    assert said in aml_run.refusal(USAGE, "--dry-run", write(tmp_path, {**job, **change}))


def test_values_of_a_search_space_are_warned_about(aml_run, tmp_path):
    path = write(tmp_path, sweep({"x": {"type": "choice", "values": ["a", "b; c"]}}, 2, "grid"))
    assert "search_space.x is 'b; c', and bash acts on ;" in aml_run.good("--dry-run", path).said
    assert aml_run.good("--dry-run", "--literal", path).said == ""


def test_each_trial_works_in_a_copy_of_the_code(aml_run, tmp_path):
    """Trials run beside each other: what they write to outputs/ or to a file of a fixed name is their own."""
    (tmp_path / "src").mkdir()
    job = sweep({"x": {"type": "choice", "values": [1, 2]}}, 2, "grid")
    job["trial"]["code"] = "./src"
    script = plan(aml_run, tmp_path, job)["jobs"][0]["script"]
    assert 'aml-runs/job-1/code "$AML_TRIAL_FOLDER/code" || exit\ncd -- "$AML_TRIAL_FOLDER/code" || exit\n' in script
    assert "--chdir" not in script and f"cd -- {tmp_path / 'src'}" not in script


def test_the_job_behind_a_sweep_may_run_where_the_trials_may(aml_run, tmp_path):
    job = {"type": "pipeline", "jobs": {"tune": sweep({"x": {"type": "choice", "values": [1, 2]}}, 2, "grid")}}
    job["jobs"]["tune"]["compute"] = "azureml:there"
    told = plan(aml_run, tmp_path, job, "--partition=gpu", "--account=a b", "--mem=1T", "--qos=high")
    trials_job, behind = (each["script"] for each in told["jobs"])
    for line in ("#SBATCH --partition=gpu\n", '#SBATCH --account="a b"\n', "#SBATCH --qos=high\n"):
        assert line in trials_job and line in behind
    assert "--mem" in trials_job and "--mem" not in behind
    assert "jobs.tune.compute" in [each["key"] for each in told["ignored"]]


# --------------------------------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_is_a_copy_without_what_is_ignored(aml_run, slurm, tmp_path):
    slurm.program("sbatch", "cat > script; echo 17")
    slurm.program("scontrol", "echo JobId=17 JobState=PENDING")
    code = tmp_path / "src"
    for path in ("train.py", "data/big.bin", "data/keep.bin", "a/b/c.tmp", "a/tmp/x", "build/x", "deep/build", ".git/config", "a/ä b"):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
        (code / path).write_text(path)
    (code / "link").symlink_to("train.py")
    (code / "train.py").chmod(0o755)
    (code / ".gitignore").write_text("*\n")  # .amlignore is read instead
    (code / ".amlignore").write_text("# comment\n*.bin\n!keep.bin\n/build\n**/tmp/\na/**/*.tmp\n\n")
    path = write(tmp_path, {"command": "x", "code": "./src", "display_name": "snap"})
    aml_run.good("--snapshot", path, cwd=tmp_path, env=slurm.env)
    copy = tmp_path / "aml-runs/snap-1/code"
    got = {str(each.relative_to(copy)) for each in copy.rglob("*") if not each.is_dir() or each.is_symlink()}
    assert got == {"train.py", "data/keep.bin", "deep/build", "a/ä b", "link", ".gitignore", ".amlignore"}
    assert f"#SBATCH --chdir={copy}" in slurm.written("script")
    assert (copy / "link").is_symlink() and (copy / "train.py").stat().st_mode & 0o111
    # An edit in place does not reach the copy.
    with (code / "train.py").open("r+") as file:
        file.write("EDITED")
    assert (copy / "train.py").read_text() == "train.py"
    aml_run.good("--snapshot", path, cwd=tmp_path, env=slurm.env)
    assert (tmp_path / "aml-runs/snap-2/code/train.py").read_text() == "EDITEDpy"


def test_a_file_that_nobody_may_write_to_is_copied(aml_run, slurm, tmp_path):
    """Even by a user who, unlike root, may not write to it, and where the file system shares no blocks."""
    slurm.program("sbatch", "cat > script; echo 17")
    slurm.program("scontrol", "echo JobId=17 JobState=PENDING")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/data").write_text("kept")
    (tmp_path / "src/data").chmod(0o444)
    path = write(tmp_path, {"command": "x", "code": "./src", "display_name": "snap"})
    as_user = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    done = subprocess.run([*as_user, aml_run.path, "--snapshot", path], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "AMLDIST_INSTANCE_TYPES": "", **slurm.env})
    assert done.returncode == 0, done.stderr
    copy = tmp_path / "aml-runs/snap-1/code/data"
    assert copy.read_text() == "kept" and copy.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("policy, copied", [("always", True), ("on-request", False)])
def test_the_site_says_whether_code_is_copied(aml_run, slurm, tmp_path, policy, copied):
    slurm.program("sbatch", "cat > script; echo 17")
    slurm.program("scontrol", "echo JobId=17 JobState=PENDING")
    (tmp_path / "src").mkdir()
    (tmp_path / "table.yml").write_text(f"code: {{snapshot: {policy}}}\n")
    path = write(tmp_path, {"command": "x", "code": "./src", "display_name": "snap"})
    aml_run.good("--instance-types", tmp_path / "table.yml", path, cwd=tmp_path, env=slurm.env)
    assert (tmp_path / "aml-runs/snap-1/code").is_dir() == copied


@pytest.mark.parametrize("file, said", [
    ({"name": "e", "dependencies": ["python=3.11"]}, "this is a conda file, not a job"),
    ({"$schema": "https://azuremlschemas.azureedge.net/latest/environment.schema.json", "name": "e"}, "'environment': give the job's file"),
    ({"$schema": "https://azuremlschemas.azureedge.net/latest/data.schema.json", "name": "d", "path": "x"}, "'data': give the job's file"),
    ({"$schema": "https://azuremlschemas.azureedge.net/latest/pipelineComponentBatchDeployment.schema.json", "type": "pipeline",
      "component": "azureml:x@latest", "endpoint_name": "e"}, "'pipelinecomponentbatchdeployment': give the job's file"),
    ({"type": "command", "version": 1, "command": "x", "additional_includes": ["../common"]}, "put those files into the code folder"),
])
def test_a_file_that_is_no_job_is_named_as_what_it_is(aml_run, tmp_path, file, said):
    assert said in aml_run.refusal(USAGE, "--dry-run", write(tmp_path, file))


def test_a_job_from_standard_input(aml_run):
    assert "command='echo hi'" in aml_run.good("--dry-run", "-", stdin=b"command: echo hi\n").text


@pytest.mark.parametrize("size, gpus", [("Standard_ND96asr_v4", "8"), ("standard_nd96isr_h100_v5", "8"), ("Standard_D4s_v3", None)])
def test_a_size_of_azures_asks_for_its_gpus(aml_run, tmp_path, size, gpus):
    path = write(tmp_path, {"command": "x", "resources": {"instance_type": size}})
    asked = re.findall(r"^#SBATCH --gpus-per-node=(.*)$", aml_run.good("--dry-run", path).text, re.M)
    assert asked == ([gpus] if gpus else [])
    if gpus:  # the user and the administrator win
        assert "--gpus-per-node=2\n" in aml_run.good("--dry-run", path, "--gpus-per-node=2").text
        (tmp_path / "table.yml").write_text(f"instance_types: {{{size}: {{partition: gpu}}}}\n")
        text = aml_run.good("--dry-run", path, "--instance-types", str(tmp_path / "table.yml")).text
        assert "--partition=gpu" in text and "gpus-per-node" not in text


def test_merge_keys(aml_run, tmp_path):
    (tmp_path / "job.yml").write_text("command: x\nenvironment_variables:\n  <<: [{A: 1, B: 2}, {A: 3, C: 4}]\n  B: 5\n")
    text = aml_run.good("--dry-run", str(tmp_path / "job.yml")).text
    assert "export B=5\n" in text and "export A=1\n" in text and "export C=4\n" in text


# ----------------------------------------------------------------------------------------------------------- cancel, download


@pytest.mark.parametrize("answer, status, said", [
    ("echo 'JobId=17 JobState=RUNNING'", 0, "cancelled job 17"),
    ("echo 'JobId=17 JobState=COMPLETED'", 3, "job 17 has ended (completed): there is nothing to cancel"),
    ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", NOT_FOUND, "Slurm no longer knows job 17"),
])
def test_cancel_says_whether_there_was_a_job_to_cancel(aml_run, slurm, tmp_path, answer, status, said):
    """scancel itself ends with 0, and without a word, for a number that no job has."""
    slurm.program("scontrol", answer)
    slurm.program("scancel", "exit 0")
    slurm.program("sacct", "exit 1")
    done = aml_run.run("--cancel", "17", cwd=tmp_path, env=slurm.env)
    assert done.status == status and said in done.said, done


def test_download_takes_what_the_job_has_of_its_own(aml_run, slurm, tmp_path):
    """In a snapshot all of outputs/ and logs/ is the job's; a folder that other jobs use has one of its number."""
    for folder in ("aml-runs/snap-1/code", "shared"):
        for path in ("outputs/model", "outputs/17/o", "logs/log"):
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_text(folder)
    for folder, there in (("aml-runs/snap-1/code", {"outputs/model", "outputs/17/o", "logs/log"}), ("shared", {"outputs/o"})):
        slurm.program("scontrol", f"printf 'JobId=17 JobState=COMPLETED\\n   WorkDir={tmp_path}/{folder}\\n'")
        path = tmp_path / f"copies of {folder.replace('/', ' ')}"
        aml_run.good("--download", "17", "--download-path", path, cwd=tmp_path, env=slurm.env)
        assert {str(each.relative_to(path / "17")) for each in path.rglob("*") if each.is_file()} == there
