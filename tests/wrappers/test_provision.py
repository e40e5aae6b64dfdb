"""Images, conda files and data behind https:, as the administrator's table says: the scripts, run with stand-ins for srun,
apptainer, micromamba and curl, which no test machine has or may reach."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest
from conftest import NOT_FOUND, USAGE

IMAGE = "command: echo hello\nenvironment:\n  image: mcr.microsoft.com/azureml/base:1.2\n"


@pytest.fixture
def table(tmp_path):
    def write(text: str) -> list[str]:
        path = tmp_path / "table.yml"
        path.write_text(text)
        return ["--dry-run", "--instance-types", str(path)]

    return write


def run_script(slurm, script: str, folder, **variables: str) -> subprocess.CompletedProcess:
    env = {**slurm.env, "SLURM_JOB_ID": "7", "HOME": str(folder), **variables}
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=30)


def step_of(script: str) -> str:
    return next(line for line in script.splitlines() if line.startswith("srun "))


@pytest.mark.parametrize("image, name", [
    ("mcr.microsoft.com/azureml/base:1.2", "mcr.microsoft.com#azureml/base:1.2"), ("ubuntu:22.04", "ubuntu:22.04"),
    ("docker://nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io#nvidia/pytorch:24.01-py3"), ("library/ubuntu", "library/ubuntu"),
    ("localhost:5000/a/b", "localhost:5000#a/b"), ("/images/a b.sqsh", "/images/a b.sqsh"),
])
def test_pyxis_is_given_the_image_in_its_own_words(aml_run, job, table, slurm, tmp_path, image, name):
    slurm.program("srun", 'printf "%s\\n" "$@"')
    script = aml_run.good(*table("images: {by: pyxis, mounts: [/data], options: [--no-container-mount-home]}\n"),
                          job(f"command: echo hello\nenvironment: {{image: \"{image}\"}}\ncode: ./src\n")).text
    done = run_script(slurm, script, tmp_path)
    words = done.stdout.splitlines()
    work = f"{tmp_path}/src"
    assert f"--container-image={name}" in words and f"--container-workdir={work}" in words, done
    assert f"--container-mounts={work}:{work},/data:/data" in words
    assert words.index("--no-container-mount-home") < words.index("bash") and words[-3:] == ["bash", "-c", "echo hello"]


@pytest.mark.parametrize("by", ["podman", "podman-hpc"])
def test_podman_gets_the_tasks_and_the_jobs_variables(aml_run, job, table, slurm, tmp_path, by):
    slurm.program("srun", f'while [[ $1 != {by} ]]; do shift; done; exec "$@"')
    slurm.program(by, 'printf "%s\\n" "$@" >words; while [[ $1 != bash ]]; do shift; done; exec "$@"')
    (tmp_path / "d").mkdir()
    script = aml_run.good(*table(f"images: {{by: {by}, mounts: [/data], options: [--device=nvidia.com/gpu=all]}}\n"),
                          job(IMAGE.replace("hello", "${{inputs.d}} $RANK") + "inputs: {d: {type: uri_folder, path: d}}\n"
                              "environment_variables: {MINE: x}\n")).text
    done = run_script(slurm, script, tmp_path, RANK="3")
    assert done.stdout == f"{tmp_path}/d 3\n", done
    words = slurm.written("words").splitlines()
    assert {"run", "--rm", "--network=host", f"--workdir={tmp_path}", f"--volume={tmp_path}:{tmp_path}", "--volume=/data:/data", "--env=RANK",
            "--env=TF_CONFIG", "--env=SLURM_*", "--env=MINE", "--device=nvidia.com/gpu=all"} <= set(words), words
    assert words[words.index("bash") - 1] == "docker://mcr.microsoft.com/azureml/base:1.2"


def test_the_jobs_variables_win_over_the_images_under_pyxis(aml_run, job, table):
    text = IMAGE + "environment_variables: {A: 1, MY_B: x y}\n"
    assert " --container-env=A,MY_B bash -c" in step_of(aml_run.good(*table("images: {by: pyxis}\n"), job(text)).text)
    assert "--container-env" not in aml_run.good(*table("images: {by: pyxis}\n"), job(IMAGE)).text
    assert "--container-env" not in aml_run.good(*table("images: {by: apptainer}\n"), job(text)).text


REGISTERED = """images: {by: pyxis}
conda: {by: micromamba, folder: /envs}
environments:
  curated: {image: "curated:any"}
  curated:7: {image: "curated:seven"}
  of-conda: {conda_file: c.yml}
data:
  mnist: MNIST
  mnist:2: MNIST/two
"""


@pytest.mark.parametrize("name, wanted", [
    ("azureml:curated@latest", "--container-image=curated:any"), ("azureml:curated:3", "--container-image=curated:any"),
    ("azureml:curated:7", "--container-image=curated:seven"), ("azureml:of-conda:1", "numpy"), ("azureml:other:1", None),
    ("file:./e.yml", "--container-image=of-a-file"), ("file:e.yml", "--container-image=of-a-file")])
def test_an_environment_by_name_is_what_the_table_says(aml_run, job, table, tmp_path, name, wanted):
    (tmp_path / "c.yml").write_text("dependencies: [numpy]\n")
    (tmp_path / "e.yml").write_text("name: e\nimage: of-a-file\n")
    done = aml_run.good(*table(REGISTERED.replace("MNIST", str(tmp_path))), job(f"command: a\nenvironment: {name}\n"))
    assert wanted in done.text if wanted else "environment: an environment that is registered with Azure ML is not here" in done.text, done


@pytest.mark.parametrize("text, said", [
    ("file:./none.yml", "1:27: environment: "), ("file:./empty.yml", "has neither image nor conda_file")])
def test_an_environments_file_that_says_nothing_is_refused(aml_run, job, table, tmp_path, text, said):
    (tmp_path / "empty.yml").write_text("name: x\n")
    assert said in aml_run.run(*table("images: {by: pyxis}\n"), job(f"{{command: a, environment: {text}}}\n")).said


@pytest.mark.parametrize("reference, folder", [("azureml:mnist:1", "data"), ("azureml:mnist@latest", "data"), ("azureml:mnist:2", "data/two")])
@pytest.mark.parametrize("form", ["{{type: uri_folder, path: {}}}", "{}"])
def test_a_data_asset_is_where_the_table_says(aml_run, job, table, tmp_path, reference, folder, form):
    (tmp_path / "data/two").mkdir(parents=True)
    text = f"command: ls ${{{{inputs.d}}}}\ninputs:\n  d: {form.format(reference)}\n"
    script = aml_run.good(*table(REGISTERED.replace("MNIST", f"{tmp_path}/data")), job(text)).text
    assert f"command='ls {tmp_path}/{folder}'" in script
    assert "the nodes cannot read" in aml_run.refusal(NOT_FOUND, *table(REGISTERED.replace("MNIST", "/x")), job(text.replace("mnist", "cifar")))


def test_apptainer_starts_the_command(aml_run, job, table, slurm, tmp_path):
    slurm.program("srun", 'while [[ $1 != apptainer ]]; do shift; done; exec "$@"')
    slurm.program("apptainer", 'printf "%s\\n" "$@" >words; shift 7; exec "$@"')
    (tmp_path / "d").mkdir()
    script = aml_run.good(*table("images: {by: apptainer, mounts: [/data], options: [--nv]}\n"),
                          job(IMAGE.replace("hello", "${{inputs.d}} ${{outputs.o}}") + f"inputs: {{d: {{type: uri_folder, path: d}}}}\n"
                              f"outputs: {{o: {{path: {tmp_path}/o}}}}\n")).text
    done = run_script(slurm, script, tmp_path)
    assert done.stdout == f"{tmp_path}/d {tmp_path}/o\n", done
    assert slurm.written("words").splitlines()[:7] == ["exec", "--pwd", str(tmp_path), "--bind", f"{tmp_path},/data,{tmp_path}/d,{tmp_path}/o", "--nv",
                                                      "docker://mcr.microsoft.com/azureml/base:1.2"]


def test_without_a_policy_the_image_is_told_to_have_no_effect(aml_run, job, table):
    done = aml_run.good(*table("computes: {}\n"), job(IMAGE))
    assert "container" not in step_of(done.text) and "environment.image" in done.text
    named = aml_run.good(*table("images: {by: pyxis}\n"), job("command: a\nenvironment: azureml:curated@latest\n"))
    assert "registered with Azure ML" in named.text.replace("\n# ", " ").replace("   ", " ")


CONDA = "command: echo $TOOL_IS\nenvironment:\n  image: ubuntu\n  conda_file: conda.yml\n"


def test_a_conda_environment_is_made_once_and_kept_by_its_content(aml_run, job, table, slurm, tmp_path):
    slurm.program("srun", 'while [[ $1 != bash ]]; do shift; done; PATH=$PATH exec "$@"')
    slurm.program("micromamba", '''echo "$@" >>made; while [[ $1 != -p ]]; do shift; done; mkdir -p "$2/bin"; printf '#!/bin/sh\\ncat "%s"\\n' "$4" >"$2/bin/show"; chmod +x "$2/bin/show"''')
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11, 'it''s']\n")
    words = table(f"conda: {{by: micromamba, folder: '{tmp_path}/all envs'}}\n")
    script = aml_run.good(*words, job(CONDA.replace("echo $TOOL_IS", "show"))).text
    for _ in range(2):
        done = run_script(slurm, script, tmp_path)
        assert done.returncode == 0 and done.stdout == "dependencies: [python=3.11, 'it''s']\n", done
    assert len(slurm.written("made").splitlines()) == 1 and "env create -y -q -p " in slurm.written("made")
    # Another content is another environment; an edit after the job was submitted changes nothing.
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.12]\n")
    assert run_script(slurm, script, tmp_path).returncode == 0 and len(slurm.written("made").splitlines()) == 1
    other = aml_run.good(*words, job(CONDA)).text
    assert run_script(slurm, other, tmp_path).returncode == 0 and len(slurm.written("made").splitlines()) == 2
    inline = aml_run.good(*words, job("command: show\nenvironment: {conda_file: {dependencies: [pip, {pip: [a]}]}}\n")).text
    assert '"pip": [' in run_script(slurm, inline, tmp_path).stdout


def test_an_environment_that_cannot_be_made_ends_the_job(aml_run, job, table, slurm, tmp_path):
    slurm.program("srun", "echo started >started")
    slurm.program("micromamba", "exit 3")
    (tmp_path / "conda.yml").write_text("dependencies: []\n")
    script = aml_run.good(*table(f"conda: {{by: micromamba, folder: {tmp_path}/e}}\n"), job(CONDA)).text
    done = run_script(slurm, script, tmp_path)
    assert done.returncode == 4 and "the environment of environment.conda_file cannot be made" in done.stderr
    assert not slurm.written("started")
    missing = aml_run.refusal(NOT_FOUND, *table(f"conda: {{by: micromamba, folder: {tmp_path}/e}}\n"), job(CONDA.replace("conda.yml", "no.yml")))
    assert "environment.conda_file is " in missing


def wheel(folder: pathlib.Path) -> pathlib.Path:
    """A package that is installed without a network: one module, `tiny`."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "value = 'from the wheel'\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def uv_file(folder: pathlib.Path) -> str:
    return f"name: e\ndependencies: ['python>=3.8', pip=24.*, {{pip: ['tiny @ file://{wheel(folder)}']}}]\n"


def test_uv_makes_an_environment_of_python_packages(aml_run, job, table, slurm, tmp_path):
    """The commands, by a stand-in."""
    slurm.program("srun", 'while [[ $1 != bash ]]; do shift; done; PATH=$PATH exec "$@"')
    slurm.program("uv", 'echo "$@" >>made; for last; do :; done; [[ $1 != venv ]] || mkdir -p "$last"; [[ $1 == venv ]] || cat "$last" >>made')
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11.*, pip, {pip: ['numpy==2.*', \"it's\"]}]\n")
    script = aml_run.good(*table(f"conda: {{by: uv, folder: '{tmp_path}/all envs'}}\n"), job(CONDA)).text
    for _ in range(2):
        assert run_script(slurm, script, tmp_path).returncode == 0
    made = slurm.written("made").splitlines()
    assert made[0].startswith(f"venv -q --python 3.11 {tmp_path}/all envs/") and made[1].startswith("pip install -q --python ")
    assert made[2:] == ["numpy==2.*", "it's"]


def test_the_real_uv_makes_an_environment(aml_run, job, table, slurm, tmp_path):
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    slurm.program("srun", 'while [[ $1 != bash ]]; do shift; done; PATH=$PATH exec "$@"')
    (tmp_path / "conda.yml").write_text(uv_file(tmp_path))
    words = table(f"conda: {{by: {uv}, folder: '{tmp_path}/all envs'}}\n")
    script = aml_run.good(*words, job(CONDA.replace("echo $TOOL_IS", "python -c 'import tiny; print(tiny.value)'"))).text
    done = run_script(slurm, script, tmp_path, UV_OFFLINE="1")
    assert done.returncode == 0 and done.stdout == "from the wheel\n", done


def test_a_package_of_conda_is_none_of_uvs(aml_run, job, table, tmp_path):
    (tmp_path / "conda.yml").write_text("dependencies: [python=3.11, cudatoolkit=11.8]\n")
    sentence = aml_run.refusal(USAGE, *table(f"conda: {{by: uv, folder: {tmp_path}/e}}\n"), job(CONDA))
    assert "'cudatoolkit=11.8', a package of conda, and this site makes environments with uv: put it below 'pip:'" in sentence


HTTPS = "command: cat ${{inputs.x}}\ninputs:\n  x: {type: uri_file, path: 'https://example.org/a/b.csv%s'}\n"


def test_a_file_behind_https_is_fetched_once(aml_run, job, table, slurm, tmp_path):
    slurm.program("srun", 'while [[ $1 != bash ]]; do shift; done; exec "$@"')
    slurm.program("curl", 'echo "${@: -1}" >>fetched; while [[ $1 != --output ]]; do shift; done; echo data >"$2"')
    words = table(f"downloads: {{folder: {tmp_path}/data}}\n")
    script = aml_run.good(*words, job(HTTPS % "")).text
    for _ in range(2):
        done = run_script(slurm, script, tmp_path)
        assert done.stdout == "data\n", done
    assert slurm.written("fetched") == "https://example.org/a/b.csv\n"
    assert (tmp_path / f"data/{os.getuid()}/example.org/a/b.csv").read_text() == "data\n"
    query = aml_run.good(*words, job(HTTPS % "?v=2")).text
    assert run_script(slurm, query, tmp_path).returncode == 0 and slurm.written("fetched").endswith("b.csv?v=2\n")


def test_what_cannot_be_fetched(aml_run, job, table, slurm, tmp_path):
    slurm.program("srun", "echo started >started")
    slurm.program("curl", "exit 22")
    words = table(f"downloads: {{folder: {tmp_path}/data}}\n")
    done = run_script(slurm, aml_run.good(*words, job(HTTPS % "")).text, tmp_path)
    assert done.returncode == 4 and "https://example.org/a/b.csv cannot be fetched" in done.stderr and not slurm.written("started")
    for path in ("https://example.org/", "https://example.org/a/../b", "wasbs://a@b/c.csv"):
        assert "--set inputs.x.path=FILE" in aml_run.refusal(NOT_FOUND, *words, job(f"command: ${{{{inputs.x}}}}\ninputs: {{x: {{type: uri_file, path: '{path}'}}}}\n"))
    assert "--set inputs.x.path=FILE" in aml_run.refusal(NOT_FOUND, "--dry-run", job(HTTPS % ""))


@pytest.mark.parametrize("text, said", [
    ("images: {by: docker}", "images: by is pyxis, apptainer, podman or podman-hpc"), ("images: {mounts: [/a]}", "images: needs by"),
    ("images: {by: pyxis, mounts: [data]}", "mounts are absolute paths without : and ,"), ("images: {by: pyxis, mount: [/a]}", "did you mean 'mounts'?"),
    ("images: pyxis", "images: needs 'key: value' lines"), ("conda: {by: conda}", "conda: needs folder"),
    ("conda: {by: conda, folder: envs}", "folder is an absolute path"), ("downloads: {folder: 'a:b'}", "folder is an absolute path"),
    ("image: {by: pyxis}", "did you mean 'images'?"), ("data: {a: b}", "data: a needs an absolute path"),
    ("environments: {a: {imag: b}}", "did you mean 'image'?"), ("environments: {a: {}}", "environments: a needs image or conda_file"),
])
def test_slips_in_the_table(aml_run, job, table, text, said):
    assert said in aml_run.refusal(USAGE, *table(text), job(IMAGE))


def test_a_path_that_no_container_can_be_given(aml_run, job, table, tmp_path):
    (tmp_path / "a,b").mkdir()
    text = IMAGE.replace("hello", "${{inputs.d}}") + "inputs: {d: {type: uri_folder, path: 'a,b'}}\n"
    assert "since : and , end a path there" in aml_run.refusal(USAGE, *table("images: {by: pyxis}\n"), job(text))
