"""Azure ML job files: what becomes of each key, the scripts as they are, and everything that can be wrong in a file."""

from __future__ import annotations

import json
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import NO_SLURM, NOT_FOUND, REFUSED, ROOT, USAGE
from flag_tables import by_text, documented

GOLDEN = pathlib.Path(__file__).parent / "golden"
EXAMPLES = ROOT / "contrib/examples/aml-run"


def script(aml_run, path, *options, **more) -> str:
    return aml_run.good("--dry-run", str(path), *options, **more).text


def directives(text: str) -> dict[str, str]:
    return {name: value.strip('"') for name, _, value in
            (line.removeprefix("#SBATCH --").partition("=") for line in text.splitlines() if line.startswith("#SBATCH "))}


def srun_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("srun "))


# ---------------------------------------------------------------------------------------------------------------- goldens


@pytest.mark.parametrize("name", ["pytorch", "pytorch-per-node", "mpi", "tensorflow"])
def test_the_example_becomes_this_script(aml_run, name):
    """The scripts are read by people, so they are kept as people see them. To change one on purpose, write the new output
    into tests/wrappers/golden."""
    text = script(aml_run, f"{name}.yml", cwd=EXAMPLES).replace(str(EXAMPLES.parent), "/home/you")
    text = text.replace(str(aml_run.path), "aml-run")
    text = re.sub(r"aml-run \d+\.\d+\.\d+", "aml-run X.Y.Z", text)
    assert text == (GOLDEN / f"{name}.sh").read_text()


def test_the_table_of_the_example_chooses_hardware(aml_run):
    text = script(aml_run, "mpi.yml", "--instance-types", "instance-types.yml", "--set",
                  "resources.instance_type=STANDARD_nd96asr_v4", cwd=EXAMPLES)
    told = directives(text)
    assert told["partition"] == "a100" and told["gpus-per-node"] == "a100:8" and told["mem"] == "0" and "exclusive" in told
    assert "--aml-dist=mpi,rdma=prefer " in srun_line(text)


def test_a_required_fabric_is_verified_before_the_program(aml_run):
    lines = aml_run.good("--dry-run", "--kind", "pytorch,rdma=require", "-N2", "--", "true").text.splitlines()
    check = next(i for i, line in enumerate(lines) if " check --policy require " in line and line.endswith("|| exit"))
    assert check < next(i for i, line in enumerate(lines) if line.startswith("srun ")), lines
    text = aml_run.good("--dry-run", "--kind", "pytorch,rdma=prefer", "-N2", "--", "true").text
    assert " check --policy" not in text, text


@pytest.mark.parametrize("arguments", [
    ["--kind", "pytorch", "-N2", "--tasks-per-node", "4", "--", "python", "train.py", "--rank", "$RANK", "a b"],
    ["--kind", "tensorflow,worker_count=3", "-n3", "--time=1:00:00", "--comment=two words", "--", "./x", "y" * 200],
    ["--kind", "none", "--setup", "module load cuda", "--", "bash", "-c", "echo $HOME"],
    ["--kind", "pytorch,rdma=require", "-N2", "--", "python", "train.py"],
])
def test_scripts_of_commands_pass_shellcheck(aml_run, arguments):
    text = aml_run.good("--dry-run", *arguments).text
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, text + done.stdout


@pytest.mark.parametrize("golden", sorted(path.name for path in GOLDEN.glob("*.sh")))
def test_golden_scripts_pass_shellcheck(golden):
    done = subprocess.run(["shellcheck", GOLDEN / golden], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------------------------------------------------- every key

ALL_KEYS = """
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
name: unique-name
display_name: shown name
experiment_name: my experiment
description: What this is for.
tags: {team: vision, empty: }
command: python train.py --lr ${{inputs.lr}} --flag ${{ inputs.flag }} --data ${{inputs.data}} --out ${{outputs.model}}
code: ./src
environment: {image: x, conda_file: y.yml}
environment_variables: {NCCL_DEBUG: WARN, SPACED: "a b", LR: "${{inputs.lr}}"}
inputs:
  lr: 0.10
  flag: true
  text: {type: string, value: v}
  data: {type: uri_folder, path: ./src, mode: ro_mount, datastore: d}
  direct: {type: uri_file, path: "https://example.org/x", mode: direct}
outputs:
  model:
  fixed: {type: uri_folder, path: ./out, mode: upload, name: n, version: 1}
  cloud: {path: "azureml://datastores/x/paths/y"}
distribution: {type: PyTorch, process_count_per_instance: 4}
compute: azureml:gpu-cluster
resources:
  instance_count: 2
  instance_type: Standard_X
  max_instance_count: 4
  shm_size: 16g
  docker_args: [--ipc=host]
  locations: [westus]
  properties: {AISuperComputer: {deep: {deeper: 1}}}
limits: {timeout: 3661}
queue_settings: {job_tier: Spot, priority: High}
services:
  my_ssh: {type: ssh, ssh_public_keys: k, nodes: all, port: 22, log_dir: l, endpoint: e, status: s, error_message: m,
           properties: {a: b}}
identity: {type: managed, client_id: c, object_id: o, msi_resource_id: r}
properties: {x: "y"}
parent_job_name: p
id: i
status: s
creation_context: {a: b}
log_files: {a: b}
parameters: {a: b}
"""


def test_every_key_is_translated_or_named_with_the_reason(aml_run, job):
    path = job(ALL_KEYS)
    told = json.loads(aml_run.good("--dry-run", "--json", path).out)
    named = {each["key"] for each in told["ignored"]}
    assert all(each["why"] and each["line"] > 0 and each["column"] > 0 for each in told["ignored"])
    assert named == {"$schema", "environment.image", "environment.conda_file", "inputs.data.datastore", "inputs.text", "inputs.direct", "outputs.fixed.name",
                     "outputs.fixed.version", "outputs.cloud.path", "compute", "resources.instance_type",
                     "resources.max_instance_count", "resources.shm_size", "resources.docker_args", "resources.locations",
                     "resources.properties", "queue_settings.priority", "services", "identity", "properties", "parent_job_name", "id",
                     "status", "creation_context", "log_files", "parameters"}
    folder = str(pathlib.Path(path).parent)
    text = told["script"]
    options = directives(text)
    assert options["job-name"] == "shown name"
    assert options["comment"] == "experiment: my experiment; team=vision; empty="
    assert options["nodes"] == "2" and options["ntasks-per-node"] == "4" and options["time"] == "01:01:01"
    assert options["chdir"] == f"{folder}/src"
    assert "# What this is for." in text
    assert "export NCCL_DEBUG=WARN\nexport SPACED='a b'\nexport LR=0.1\n" in text
    assert 'AML_OUTPUT_model="$PWD/outputs/$SLURM_JOB_ID/model"' in text and f"AML_OUTPUT_fixed={folder}/out\n" in text
    assert 'AML_OUTPUT_cloud="$PWD/outputs/$SLURM_JOB_ID/cloud"' in text
    # As the SDK writes them: True for true, 0.1 for 0.10.
    assert "'python train.py --lr ${{inputs.lr}} --flag ${{ inputs.flag }} --data ${{inputs.data}} --out ${{outputs.model}}'" in text
    for value in ("inputs.lr=0.1", "inputs.flag=True", f"inputs.data={folder}/src", '"outputs.model=$AML_OUTPUT_model"'):
        assert f" {value}" in text
    assert srun_line(text) == 'srun --kill-on-bad-exit=1 --aml-dist=pytorch bash -c "$command"'


def test_the_table_of_keys_knows_all_of_this_file(aml_run):
    rows = json.loads(aml_run.good("--list-keys", "--json").out)
    top = {row["key"] for row in rows if "." not in row["key"]}
    assert top == set(re.findall(r"^([\w$]+):", ALL_KEYS, re.M)) | {"component", "version", "is_deterministic", "additional_includes", "retry_settings"}
    assert all(row["becomes"] and row["handling"] in ("translated", "ignored", "refused") for row in rows)


def test_the_documentation_has_the_same_keys(aml_run):
    rows = [row | {"names": [row["key"]]} for row in json.loads(aml_run.good("--list-keys", "--json").out)]
    assert documented("Keys of a command job", "docs/azure-ml.md") == by_text(rows)


@pytest.mark.parametrize("distribution, count, expected", [
    ("", 1, "srun --kill-on-bad-exit=1 bash"),
    ("{type: pytorch}", 3, "srun --kill-on-bad-exit=1 --aml-dist=pytorch bash"),
    ("{type: mpi, process_count_per_instance: 8}", 2, "srun --mpi=pmix --kill-on-bad-exit=1 --aml-dist=mpi bash"),
    ("{type: tensorflow}", 3, "srun --kill-on-bad-exit=1 --aml-dist=tensorflow,worker_count=3 bash"),
    ("{type: TensorFlow, worker_count: 2, parameter_server_count: 1}", 2,
     "srun --distribution=cyclic --kill-on-bad-exit=1 --aml-dist=tensorflow,worker_count=2,parameter_server_count=1 bash"),
    ("{type: jax, process_count_per_instance: 4}", 1, "srun --kill-on-bad-exit=1 --aml-dist=jax bash"),
])
def test_distributions(aml_run, job, distribution, count, expected):
    path = job(f"command: python train.py\ndistribution: {distribution}\nresources: {{instance_count: {count}}}\n")
    assert srun_line(script(aml_run, path)).startswith(expected)


@pytest.mark.parametrize("command, per_node", [
    ("torchrun --nnodes 2 --node_rank $NODE_RANK train.py", True),
    ("python -m torch.distributed.launch --nproc_per_node 4 --use_env train.py", True),
    ("cd x && /opt/bin/torchrun train.py", True),
    ("accelerate launch --machine_rank $NODE_RANK train.py", True),
    # With one process on each node RANK is that of the node, and some commands use it so.
    ("torchrun --nnodes $WORLD_SIZE --node_rank ${RANK} train.py", False),
    ("python my_torchrun_script.py", False),
    ("'python train.py # not torchrun'", False), ("python train.py torchrun", False), ("echo torchrun; python x.py", False),
    ("python train.py --help-of 'torchrun x'", False), ("A=1 nice -n 5 torchrun x.py", True), ("bash -lc 'torchrun x.py'", True),
    ("if true; then torchrun x.py; fi", True), ('"echo \'a # b\' && torchrun x.py"', True), ("'cat <(true) | (torchrun x.py)'", True),
    ("python train.py --launcher torchrun.py", False),
])
def test_a_launcher_in_the_command_is_started_once_on_each_node(aml_run, job, command, per_node):
    path = job(f"command: {command}\ndistribution: {{type: pytorch}}\nresources: {{instance_count: 2}}\n")
    assert ("launch=per-node" in srun_line(script(aml_run, path))) == per_node


@pytest.mark.parametrize("words, option", [
    (["torchrun", "--nproc_per_node=4", "train.py"], "pytorch,launch=per-node"),
    (["/opt/bin/torchrun", "train.py"], "pytorch,launch=per-node"),
    (["python3", "-u", "-m", "torch.distributed.run", "--node_rank", "$NODE_RANK", "t.py"], "pytorch,launch=per-node"),
    (["accelerate", "launch", "train.py"], "pytorch,launch=per-node"),
    (["torchrun", "--node_rank", "$RANK", "train.py"], "pytorch"),
    (["python", "train.py", "torchrun"], "pytorch"), (["echo", "-m", "torch.distributed.run"], "pytorch"),
])
def test_a_launcher_behind_the_dashes_is_started_once_on_each_node(aml_run, words, option):
    text = aml_run.good("--dry-run", "-N2", "--", *words).text
    assert f"--aml-dist={option} " in text.replace("\\\n", " ")
    assert "one launcher per node" in aml_run.refusal(USAGE, "-N2", "--tasks-per-node=2", "--", *words) if "," in option else True


# ---------------------------------------------------------------------------------------------------- inputs and quoting


def test_literals_are_text_as_on_azure_ml(aml_run, job):
    """`${{inputs.more}}` may hold several arguments."""
    path = job('command: prog ${{inputs.more}} ${{inputs.n}} ${{inputs.s}}\n'
               'inputs: {more: "--a 1 --b \\"x y\\"", n: 1e-3, s: "true"}\n')
    assert "command='prog --a 1 --b \"x y\" 1e-3 true'" in script(aml_run, path)


def test_set_changes_any_key(aml_run, job):
    path = job("command: prog ${{inputs.data}}\ninputs:\n  data: azureml:cifar:1\nlimits: {timeout: 60}\n")
    text = script(aml_run, path, "--set", "inputs.data.path=./src", "--set", "limits.timeout=120", "--set", "display_name=x")
    assert f"prog {pathlib.Path(path).parent}/src'" in text
    assert directives(text)["time"] == "00:02:00" and directives(text)["job-name"] == "x"


def test_the_command_line_wins(aml_run, job):
    path = job("command: x\ndistribution: {type: pytorch, process_count_per_instance: 4}\nresources: {instance_count: 2}\n"
               "limits: {timeout: 60}\ncode: src\n")
    told = directives(script(aml_run, path, "-N4", "-t", "10", "-p", "gpu", "--gpus-per-node=4", "-J", "n", "--exclusive"))
    assert told == {"job-name": "n", "partition": "gpu", "nodes": "4", "ntasks-per-node": "4", "gpus-per-node": "4",
                    "time": "10", "chdir": told["chdir"], "output": "/slurm-%j.out", "exclusive": ""}
    told = directives(script(aml_run, path, "-n6", "-D", "/tmp", "-o", "log"))
    assert told["ntasks"] == "6" and "ntasks-per-node" not in told and told["chdir"] == "/tmp" and told["output"] == "log"


def test_kind_replaces_the_distribution(aml_run, job):
    path = job("command: x\ndistribution: {type: pytorch, process_count_per_instance: 4}\n")
    assert "--mpi=pmix --kill-on-bad-exit=1 --aml-dist=mpi " in srun_line(script(aml_run, path, "--kind", "mpi"))
    text = script(aml_run, path, "--kind", "none")
    assert srun_line(text) == 'srun --kill-on-bad-exit=1 bash -c "$command"' and directives(text)["ntasks-per-node"] == "4"


def test_files_of_other_editors(aml_run, job):
    """DOS line ends and a byte order mark."""
    path = job(b"\xef\xbb\xbfcommand: |\r\n  first $RANK\r\n  second\r\ndistribution:\r\n  type: pytorch\r\n")
    text = script(aml_run, path)
    assert "command='first $RANK\nsecond'" in text and "\r" not in text


def test_a_folder_with_a_percent_sign_is_no_pattern(aml_run, tmp_path):
    folder = tmp_path / "100%j"
    folder.mkdir()
    (folder / "job.yml").write_text("command: x\ncode: .\n")
    assert directives(script(aml_run, "job.yml", cwd=folder))["output"] == str(tmp_path) + "/100%%j/slurm-%j.out"


# ------------------------------------------------------------------------------------------------------------ wrong files


def bomb() -> str:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    return "\n".join(lines) + "\ncommand: x\n"


@pytest.mark.parametrize("text, place, said", [
    ("command: x\n\tcode: y\n", "2:1", "this line is indented by a tab"),
    ("inputs:\n\ta: 1\ncommand: x\n", "2:1", "this line is indented by a tab"),
    ("command: x\ncommand: y\n", "2:1", "key 'command' is given a second time, after line 1"),
    ("command: [unclosed\n", None, "this is not YAML: a [ or { before is not closed"),
    ("command: python t.py --x: 3\n", "1:25", "a second ': ' would begin another key: put the value in quotes, or below 'KEY: |'"),
    ("command: 'it's fine'\n", "1:14", "text follows the closing quote: write '' for a quote within '...'"),
    ("command: x\n  resources: {}\n", "2:12", "this line is indented deeper than a key above that has its value already"),
    ("command: x\n- a\n", None, "an item of a list stands beside keys: indent it below its key"),
    ("inputs:\n  a: 1\n b: 2\ncommand: x\n", "3:2", "this line is no 'key: value' in the column of the keys above"),
    ("command: @x\n", "1:10", "a value cannot begin with '@': put the value in quotes"),
    ("command: *x\n", "1:10", "'*' names an anchor that does not exist"), ("tags: {a: b}}\ncommand: x\n", None, "closes nothing"),
    ("command: x\nresources: {instance_count: \"${{inputs.n}}\"}\n", "2:29", "${{...}} has a value in command and environment_variables"),
    ("command: x\ncode: ./${{inputs.n}}\n", "2:7", "${{...}} has a value in command"),
    ("command: x\nlimits: {timeout: \"${{inputs.t}}\"}\n", "2:19", "${{...}} has a value in command"),
    ("command: x\nenvironment: {image: \"a:${{inputs.v}}\"}\n", "2:22", "${{...}} has a value in command"),
    ("command: x ${{inputs.a}}\ninputs: {a: \"${{parent.inputs.b}}\"}\n", "2:13", "which has a value in a pipeline only"),
    ("command: 'x\ncode: src\n", "1:10", "a quote begins here and is not closed"),
    ('command: "x\\"\ncode: src\n', "1:10", "a quote begins here and is not closed"),
    ("command: x\n---\ncommand: y\n", None, "a second document"),
    ("- a\n- b\n", "1:1", "this is not a map"),
    ("just text\n", "1:1", "this is not a map"),
    ("", None, "is empty"),
    ("# only a comment\n", None, "is empty"),
    (b"command: \xff\xfe\n", "1:10", "save the file as UTF-8"),
    (b"command: a\0b\n", "1:11", "save the file as UTF-8"),
    ("command: x".encode("utf-16"), None, "save the file as UTF-8"),
    ("command: x\n? [complex]\n: y\n", "2:3", "a key must be a plain word"),
    ("command: x\n<<: y\n", "2:5", "a merge key (<<) takes a map"),
    ('command: "a\\0b"\n', "1:10", "a NUL character"),
    ("command: &a [*a]\n", None, "alias"),
    ("comand: x\n", "1:1", "unknown key 'comand': did you mean 'command'?"),
    ("command: x\ndistribution: {type: pytorch, procces_count_per_instance: 2}\n", "2:31",
     "did you mean 'process_count_per_instance'?"),
    ("command: x\nresources:\n  instance_cnt: 2\n", "3:3", "unknown key 'instance_cnt' in resources: did you mean"),
    ("command: x\ninputs: {a: {pth: x}}\n", "2:14", "in inputs.a: did you mean 'path'?"),
    ("command: x\ntype: command\ntrial: 1\n", "3:1", "unknown key 'trial'"),
    ("command: x\ntype: sweep\n", "1:1", "unknown key 'command' in a sweep"),
    ("command: x\ntype: automl\n", "2:7", "type automl is not supported"),
    ("command: x\ntype: kommand\n", "2:7", "invalid value 'kommand' for type: use command, sweep or pipeline"),
    ("display_name: x\n", None, "there is no command"),
    ("command: '  '\n", "1:10", "there is no command"),
    ("command: [a, b]\n", "1:10", "command is a list: use one value"),
    ("command: x\nresources: {instance_count: 0}\n", "2:29", "resources.instance_count is '0': use a whole number, 1 or more"),
    ("command: x\nresources: {instance_count: 1.5}\n", "2:29", "is '1.5'"),
    ("command: x\nresources: {instance_count: -1}\n", "2:29", "is '-1'"),
    ("command: x\nresources: {instance_count: 99999999999}\n", "2:29", "is '99999999999'"),
    ("command: x\nresources: {instance_count: two}\n", "2:29", "is 'two'"),
    ("command: x\nresources: {instance_count: 4}\n", "2:29", "there is no distribution"),
    ("command: x\nlimits: 5\n", "2:9", "limits is '5'"),
    ("command: x\ndistribution: {process_count_per_instance: 2}\n", "2:15", "distribution has no type"),
    ("command: x\ndistribution: {type: pytorhc}\n", "2:22", "did you mean 'pytorch'?"),
    ("command: x\ndistribution: {type: ray, process_count_per_instance: 2}\n", "2:27", "does not exist for type ray"),
    ("command: x\ndistribution: {type: pytorch, dashboard_port: 8265}\n", "2:31", "does not exist for type pytorch"),
    ("command: x\ndistribution: {type: mpi, worker_count: 2}\n", "2:27", "does not exist for type mpi"),
    ("command: x\ndistribution: {type: tensorflow, process_count_per_instance: 2}\n", "2:34", "does not exist for type tensorflow"),
    ("command: x\ndistribution: {type: tensorflow, worker_count: 0}\n", "2:48", "no task would train"),
    ("command: x\ndistribution: {type: tensorflow, worker_count: 2}\nresources: {instance_count: 3}\n", "3:29", "use at most 2 nodes"),
    ("command: torchrun t.py\ndistribution: {type: pytorch, process_count_per_instance: 4}\n", "2:59",
     "the command starts torchrun, which starts the processes of a node itself"),
    ("command: x ${{inputs.a}}\n", "1:10", "${{inputs.a}} is not among the job's inputs"),
    ("command: x ${{inputs.epoch}}\ninputs: {epochs: 1}\n", "1:10", "did you mean inputs.epochs?"),
    ("command: x ${{inputs.a\n", "1:10", "is not closed"),
    ("command: x ${{parent.x}}\n", "1:10", "is neither an input nor an output"),
    ("command: x $[[--a ${{inputs.b}}]]\n", "1:10", "belongs to components"),
    ("command: x ${{inputs.a}}\ninputs: {a: }\n", "2:10", "inputs.a is empty"),
    ("command: x ${{inputs.a}}\ninputs: {a: {type: uri_file}}\n", "2:10", "has no path and no value"),
    ("command: x\ninputs: {'a b': 1}\n", "2:10", "is not a valid name"),
    ("command: x\noutputs: {o: folder}\n", "2:14", "leave it empty"),
    ("command: x\nenvironment_variables: {'A B': 1}\n", "2:25", "is not a variable name"),
    ("command: x\nidentity: {type: nobody}\n", "2:18", "invalid value 'nobody' for identity.type"),
])
def test_wrong_files_are_refused_with_place_and_remedy(aml_run, job, text, place, said):
    path = job(text)
    sentence = aml_run.refusal(USAGE, "--dry-run", path)
    assert said in sentence
    assert sentence.startswith(path if place is None else f"{path}:{place}: "), sentence


@pytest.mark.parametrize("make, said", [
    (bomb, "more than 20000 values"),
    (lambda: "command: " + "[" * 600 + "]" * 600 + "\n", "lists and maps are nested more than 32 levels deep"),
    (lambda: "command: " + "{a: " * 40 + "}" * 40 + "\n", "lists and maps are nested more than 32 levels deep"),
    (lambda: "#" + "x" * 10_000_000 + "\ncommand: x\n", "longer than 256 KiB"),
    (lambda: "command: x\n" + "".join(f"k{i}: 1\n" for i in range(5_000)), "unknown key 'k0'"),
    (lambda: "command: x\ntags:\n" + "".join(f"  k{i}: 1\n" for i in range(20_000)), "more than 20000 values"),
    (lambda: "command: '" + "x " * 100_000 + "\n", "a quote begins here and is not closed"),
], ids=["aliases", "lists", "maps", "10 MB", "keys", "tags", "open quote"])
def test_files_that_would_explode_end_at_a_limit(aml_run, job, make, said):
    assert said in aml_run.refusal(USAGE, "--dry-run", job(make()), timeout=20)


def test_damaged_files_end_in_a_script_or_in_one_sentence(aml_run, job):
    """Bytes of a whole job file changed, removed, doubled and moved about."""
    generator = random.Random(8)
    for _ in range(400):
        text = bytearray(ALL_KEYS.encode())
        for _ in range(generator.randrange(1, 6)):
            at, length = generator.randrange(len(text)), generator.randrange(1, 12)
            piece = text[at:at + length]
            change = generator.randrange(4)
            if change == 0:
                text[at] = generator.randrange(256)
            elif change == 1:
                del text[at:at + length]
            elif change == 2:
                text[at:at] = piece * generator.randrange(1, 4)
            else:
                text[generator.randrange(len(text)):0] = generator.choice([b"&a ", b"*a", b"{", b"]", b"- ", b": ", b"\n", b"'", b'"', b"|\n"])
        done = aml_run.run("--dry-run", job(bytes(text)))
        if done.status == 0:
            assert done.out.startswith(b"#!/bin/bash\n"), done
        else:
            assert done.status in (USAGE, NOT_FOUND) and done.out == b"", done
            assert done.said.startswith("aml-dist: ") and done.said.count("\n") == 1, done


@pytest.mark.parametrize("text, said", [
    ("command: x\ncode: ./none\n", "which does not exist"), ("command: x\ncode: job.yml\n", "which is not a folder"),
    ("command: x\ncode: git+https://example.org/x\n", "out of reach"), ("command: x\ncode: azureml:code:1\n", "out of reach"),
    ("command: x ${{inputs.a}}\ninputs: {a: {path: ./none}}\n", "which does not exist"),
    ("command: x ${{inputs.a}}\ninputs: {a: {path: 'azureml://x'}}\n", "--set inputs.a.path=FOLDER"),
    ("command: x ${{inputs.a}}\ninputs: {a: azureml:a:1}\n", "--set inputs.a.path=FOLDER"),
])
def test_what_a_file_names_must_be_there(aml_run, job, text, said):
    path = job(text)
    sentence = aml_run.refusal(NOT_FOUND, "--dry-run", path)
    assert said in sentence and sentence.startswith(path + ":")


def test_an_input_of_another_type_is_refused(aml_run, job):
    for kind, path in (("uri_file", "./src"), ("uri_folder", "./job.yml")):
        text = job(f"command: x ${{{{inputs.a}}}}\ninputs: {{a: {{type: {kind}, path: {path}}}}}\n")
        assert f"is a {kind}, but" in aml_run.refusal(USAGE, "--dry-run", text)


def test_files_that_are_not_there_or_no_files(aml_run, tmp_path):
    assert "No such file" in aml_run.refusal(NOT_FOUND, "--dry-run", f"{tmp_path}/none.yml")
    assert "not a regular file" in aml_run.refusal(NOT_FOUND, "--dry-run", "/dev/zero")
    (tmp_path / "folder.yml").mkdir()
    assert "not a regular file" in aml_run.refusal(NOT_FOUND, "--dry-run", f"{tmp_path}/folder.yml")
    subprocess.run(["mkfifo", tmp_path / "fifo.yml"], check=True)
    assert "not a regular file" in aml_run.refusal(NOT_FOUND, "--dry-run", f"{tmp_path}/fifo.yml")


@pytest.mark.parametrize("text, said", [
    ("instance_type: {}\n", "1:1: unknown key 'instance_type': did you mean 'instance_types'?"),
    ("instance_types: {A: {partitoin: x}}\n", "1:22: unknown key 'partitoin': did you mean 'partition'?"),
    ("instance_types: {A: {gpus_per_node: many}}\n", "gpus_per_node is a whole number"),
    ("instance_types: {A: {infiniband: maybe}}\n", "infiniband is require, prefer or off"),
    ("instance_types: {A: {options: [nonsense]}}\n", "'nonsense' is not an option of sbatch"),
    ("instance_types: {A: {gpu_type: a100}}\n", "gpu_type needs gpus_per_node"),
    ("instance_types: [A]\n", "write 'NAME:' lines below it"),
])
def test_a_wrong_table_is_refused(aml_run, job, text, said):
    path, table = job("command: x\n"), job(text, "table.yml")
    assert said in aml_run.refusal(USAGE, "--dry-run", "--instance-types", table, path)


def test_an_instance_type_that_is_not_in_the_table(aml_run, job):
    table = job("instance_types: {Standard_ND96asr_v4: {partition: a}}\n", "table.yml")
    path = job("command: x\nresources: {instance_type: Standard_ND96ars_v4}\n")
    sentence = aml_run.refusal(NOT_FOUND, "--dry-run", "--instance-types", table, path)
    assert "did you mean 'Standard_ND96asr_v4'?" in sentence and sentence.startswith(f"{path}:2:28: ")


# ------------------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize("arguments, said", [
    ([], "there is nothing to run"), (["--"], "the command after -- is missing"), (["train.py"], "put -- in front of a command"),
    (["a.yml", "--", "x"], "give one of them"), (["a.yml", "b.yml"], "unexpected argument 'b.yml'"),
    (["--dry-rnu", "a.yml"], "did you mean --dry-run?"), (["--partitoin=x", "--", "x"], "did you mean --partition?"),
    (["--kind", "pytorhc", "--", "x"], "did you mean 'pytorch'?"), (["--kind", "mpi,launch=x", "--", "x"], "launch='x'"),
    (["-N0", "--", "x"], "invalid value '0' for --nodes: use a whole number"), (["-n", "x", "--", "x"], "invalid value 'x' for --ntasks"),
    (["--tasks-per-node=-1", "--", "x"], "invalid value '-1' for --ntasks-per-node"), (["-N"], "--nodes needs a value"),
    (["--hold=yes", "--", "x"], "--hold takes no value"), (["--set", "x", "a.yml"], "write PATH=VALUE"),
    (["--set", "a=b", "--", "x"], "--set changes a job file"), (["--wait", "-a", "1-3", "--", "x"], "--array makes many"),
    (["-N2", "--", "srun", "-n8", "python", "t.py"], "the command starts srun, which aml-run does itself: leave srun out"),
    (["-N2", "--", "env", "A=b", "bash", "-c", "cd x && srun y"], "the command starts srun"),
    (["-N2", "--kind", "mpi", "--", "mpirun", "-np", "8", "x"], "2 tasks on 2 nodes, each of which would start 8 processes (mpirun)"),
    (["-N2", "--", "composer", "-n", "8", "t.py"], "composer on each of 2 nodes is not told of the others and would make 2 worlds"),
    (["-N2", "--tasks-per-node=8", "--kind", "tensorflow", "--", "horovodrun", "-np", "8", "x"], "8 tasks on the node, each of which"),
    (["--kind", "pytorch,launch=per-node", "--tasks-per-node=4", "--", "torchrun"], "one launcher per node but a node has 4 tasks"),
    (["--kind", "pytorch,process_count=8", "-N2", "--tasks-per-node=2", "--", "x"], "process_count=8 but the step has 4 tasks"),
    (["--kind", "mpi,node_count=3", "-N2", "--", "x"], "node_count=3 but the step has 2 nodes"),
    (["--kind", "tensorflow,worker_count=2", "-n3", "--", "x"], "the task counts add up to 2 tasks but the step has 3 tasks"),
    (["--json=x", "--", "x"], "--json takes no value"), (["--kind", "mpi", "--mpi"], "--mpi needs a value"),
    (["--mpi=a", "--mpi=b", "--", "x"], "--mpi is given twice"), (["-Wx", "--", "x"], "--exclude needs a value"),
])
def test_wrong_command_lines(aml_run, arguments, said):
    assert said in aml_run.refusal(USAGE, *arguments)


def test_wrap_is_refused_and_test_only_asks_sbatch(aml_run, slurm, job):
    assert "put the command after --" in aml_run.refusal(USAGE, "--wrap=hostname", job("command: x\n"))
    slurm.program("sbatch", 'echo "$@" > words; cat > script; echo "sbatch: Job 1 to start at once" >&2')
    done = aml_run.good("--test-only", job("command: x\n"), env=slurm.env)
    assert slurm.written("words") == "--test-only\n" and "to start at once" in done.said


def test_paths_in_errors_are_whole(aml_run, job):
    path = "/" + "/".join(f"folder{i}" for i in range(12))
    assert f"'{path}'" in aml_run.refusal(NOT_FOUND, "--dry-run", job(f"command: x\ncode: {path}\n"))


def test_options_of_sbatch_in_all_their_spellings(aml_run):
    told = directives(aml_run.good("--dry-run", "-N", "2", "-n4", "-Hp", "gpu", "--mem", "4G", "--exclusive", "--nice=5",
                                   "--container-image=x#y", "-vv", "--tasks-per-node=2", "-C", "a|b", "--", "x").text)
    assert told == {"job-name": "x", "nodes": "2", "ntasks": "4", "hold": "", "partition": "gpu", "mem": "4G", "exclusive": "",
                    "nice": "5", "container-image": "x#y", "verbose": "", "ntasks-per-node": "2", "constraint": "a|b"}


@pytest.mark.parametrize("arguments, shape", [
    ([], {"nodes": "1", "ntasks-per-node": "1"}), (["-n4"], {"ntasks": "4"}),
    (["-N2"], {"nodes": "2", "ntasks-per-node": "1"}), (["--tasks-per-node=3"], {"nodes": "1", "ntasks-per-node": "3"}),
    (["--kind", "tensorflow,worker_count=2,parameter_server_count=1"], {"ntasks": "3"}),
    (["--kind", "mpi,process_count=8", "-N2-4", "--tasks-per-node=2"], {"nodes": "2-4", "ntasks-per-node": "2"}),
])
def test_the_shape_is_completed(aml_run, arguments, shape):
    told = directives(aml_run.good("--dry-run", *arguments, "--", "x").text)
    assert told == {"job-name": "x", **shape}


def test_in_each_of_several_tasks_nothing_is_started(aml_run, slurm):
    slurm.program("srun", 'printf "%s\\n" "$@"')
    env = {**slurm.env, "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    assert "in each of 4 tasks" in aml_run.refusal(USAGE, "--", "x", env=env)
    assert "--overlap" in aml_run.good("--", "x", env={**env, "SLURM_STEP_NUM_TASKS": "1"}).text.splitlines()
    batch = {**env, "SLURM_STEP_ID": "4294967291"}  # the batch script is a step of Slurm's own
    assert "--overlap" not in aml_run.good("--", "x", env=batch).text


def test_no_slurm(aml_run, job):
    said = aml_run.refusal(NO_SLURM, "--", "x", env={"PATH": "/nowhere"})
    assert said.startswith("sbatch is not installed here") and "--dry-run" in said


@pytest.mark.parametrize("message, status, said", [
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", REFUSED,
     "Slurm does not accept the job: Batch job submission failed: Invalid account"),
    ("sbatch: error: Unable to contact slurm controller (connect failure)", NO_SLURM, "Slurm does not answer: "),
    ("aml-dist: unknown key 'x'\nsbatch: error: other", REFUSED, "Slurm does not accept the job: unknown key 'x'"),
    ("", REFUSED, "it gave no reason"),
])
def test_sbatch_that_refuses(aml_run, slurm, message, status, said):
    slurm.program("sbatch", f"cat >script; printf '%s\\n' {json.dumps(message)} >&2; exit 1")
    assert said in aml_run.refusal(status, "--", "x", env=slurm.env)


def test_nothing_is_submitted_when_anything_is_wrong(aml_run, slurm, job):
    slurm.program("sbatch", "echo called >>called")
    for arguments in (["--kind", "nonsense", "--", "x"], [job("command: x\nresources: {instance_count: 0}\n")], ["--dry-run", "--", "x"],
                      [job("command: x\ncode: ./none\n")], ["--help"], ["--list-keys"]):
        aml_run.run(*arguments, env=slurm.env)
    assert slurm.written("called") == ""


def test_a_submission(aml_run, slurm, job):
    slurm.program("sbatch", 'echo "$@" >arguments; cat >script; echo "sbatch: a word" >&2; echo "17;cluster"')
    slurm.program("scontrol", "printf 'JobId=17 JobName=x\\n   JobState=PENDING Reason=Priority\\n   StdOut=/o u t/17.out\\n'")
    path = job("command: python x.py\n")
    done = aml_run.good("--json", path, env=slurm.env)
    told = json.loads(done.out)
    assert told["job_id"] == 17 and told["output"] == "/o u t/17.out" and told["name"] == "job"
    assert slurm.written("script") == told["script"] == script(aml_run, path)
    assert slurm.written("arguments") == "--parsable\n"
    assert "sbatch: a word" in done.said and "aml-dist: submitted job 17 (job); output: /o u t/17.out" in done.said


def test_an_interrupt_while_sbatch_works_leaves_no_job_untold(aml_run, slurm):
    slurm.program("sbatch", "cat >script; touch called; sleep 1; echo 17")
    slurm.program("scontrol", "printf 'JobId=17\\n   JobState=PENDING Reason=None\\n'")
    # A shell that starts the suite in the background lets its children ignore SIGINT; a terminal does not.
    command = ["env", "--default-signal=INT", aml_run.path, "--", "x"]
    with subprocess.Popen(command, env=slurm.env, stderr=subprocess.PIPE, text=True) as run:
        while not (slurm.folder / "called").exists():
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said = run.stderr.read()
    assert run.returncode == -signal.SIGINT and "submitted job 17" in said


def test_in_an_allocation_a_step(aml_run, slurm):
    slurm.program("srun", 'printf "%s\\n" "$@"')
    env = {**slurm.env, "SLURM_JOB_ID": "9"}
    done = aml_run.good("-N2", "--tasks-per-node=2", "-p", "x", "--", "prog", "a b", env=env)
    assert done.text.splitlines() == ["--job-name=prog", "--nodes=2", "--ntasks-per-node=2", "--kill-on-bad-exit=1",
                                      "--aml-dist=pytorch", "prog", "a b"]
    assert "--partition cannot be changed any more" in done.said
    # What is not said is the allocation's.
    assert aml_run.good("--", "x", env=env).text.splitlines() == ["--job-name=x", "--kill-on-bad-exit=1", "--aml-dist=pytorch", "x"]
    # But not its number of tasks, where the line says how many each node has.
    of_two = {**env, "SLURM_NTASKS": "2", "SLURM_NNODES": "2"}
    done = aml_run.good("-N2", "--tasks-per-node=2", "--", "x", env=of_two)
    assert done.text.splitlines()[1:4] == ["--nodes=2", "--ntasks-per-node=2", "--ntasks=4"]
    assert "use --new-job" in aml_run.refusal(USAGE, "--json", "--", "x", env=env)
    assert aml_run.good("--dry-run", "--new-job", "--", "x", env=env).text.startswith("#!/bin/bash\n#SBATCH ")


# ------------------------------------------------------------------------------------------------------------------ help


def test_help_begins_with_examples_and_fits_a_screen(aml_run):
    text = aml_run.good("--help").text
    assert text.startswith("Examples:\n") and len(text.splitlines()) <= 45


def test_version_and_kinds(aml_run):
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert aml_run.good("--version").text == f"aml-run {version}\n"
    assert "--aml-dist=KIND" in aml_run.good("--kind=help").text


def test_colours_only_on_a_terminal(aml_run):
    """Under script(1) there is one; NO_COLOR switches them off."""
    line = f"{aml_run.path} --no-such-option"
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        done = subprocess.run(["script", "-qec", line, "/dev/null"], capture_output=True, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/bin:/bin", "TERM": "xterm", **env})
        assert (b"\x1b[" in done.stdout) == coloured, done
    assert b"\x1b" not in aml_run.run("--no-such-option", env={"TERM": "xterm"}).err
