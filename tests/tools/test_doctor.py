"""`aml-dist doctor` without a cluster: imagined steps, saved environments, and what it refuses.

What the frameworks really do is compared with it in tests/frameworks; here are the rules for which this machine has no
hardware, and the edges.
"""

import json
import shlex
import subprocess

import pytest

FIELDS = ["framework", "launcher", "environment", "rank", "size", "master", "verdict", "reason", "remedy"]
TWO_BY_TWO = ["--nodelist", "n[1-2]", "--tasks-per-node", "2"]
PER_NODE = ["--aml-dist=pytorch,launch=per-node,nproc_per_node=4", "--nodelist", "n[1-2]", "--tasks-per-node", "1"]


def doctor(tool, *arguments, status=None, env=None):
    """Rows by framework and launcher."""
    done = tool.run("doctor", "--json", *arguments, env=env)
    assert done.stderr == "", done
    rows = json.loads(done.stdout)
    assert all(list(row) == FIELDS for row in rows)
    sick = any(row["verdict"] in ("fails", "hangs", "alone") for row in rows)
    assert done.returncode == (1 if sick else 0), done
    if status is not None:
        assert done.returncode == status, rows
    return {(row["framework"], row["launcher"]): row for row in rows}


def changed(*pairs):
    return [word for pair in pairs for word in ("--env", pair)]


@pytest.mark.parametrize("kind, framework, environment", [
    ("pytorch", "torch", "env://"),
    ("pytorch", "lightning", "SLURMEnvironment"),
    ("pytorch", "deepspeed", "env://"),
    ("pytorch", "ignite", "Slurm"),
    ("mpi", "lightning", "SLURMEnvironment"),
    ("mpi", "horovod", "PMIx"),
    ("mpi", "mpi", "PMIx"),
    ("tensorflow", "tensorflow", "TFConfigClusterResolver"),
    ("jax", "jax", "SlurmCluster"),
])
def test_a_healthy_step_of_each_kind(tool, kind, framework, environment):
    for rank in range(4):
        rows = doctor(tool, f"--aml-dist={kind}", *TWO_BY_TWO, "--task", str(rank), status=0)
        row = rows[framework, "srun"]
        assert (row["verdict"], row["environment"], row["rank"], row["size"]) == ("fine", environment, rank, 4)
        if environment != "PMIx":
            assert row["master"].startswith("n1:")


def test_a_healthy_step_per_node(tool):
    rows = doctor(tool, *PER_NODE, status=0)
    assert rows["torch", "torchrun"]["size"] == 8 and rows["torch", "torchrun"]["rank"] is None
    assert rows["lightning", "srun"]["environment"] == "LightningEnvironment"
    assert rows["lightning", "torchrun"]["environment"] == "TorchElasticEnvironment"
    assert rows["torch", "srun"]["verdict"] == "skip"


def test_a_step_of_ray(tool):
    step = ["--aml-dist=ray", "--nodelist=n[1-2]", "--tasks-per-node=1"]
    rows = doctor(tool, *step, status=0)
    row = rows["ray", "aml-dist ray"]
    assert (row["verdict"], row["size"], row["master"][:3]) == ("fine", 2, "n1:")
    assert rows["torch", "srun"]["verdict"] == "skip"
    for change, verdict in (("RAY_ADDRESS", "alone"), ("RAY_ADDRESS=127.0.0.1:6379", "hangs")):
        assert doctor(tool, *step, "--env", change, status=1)["ray", "aml-dist ray"]["verdict"] == verdict


def test_a_step_is_examined_for_what_it_is_for(tool):
    rows = doctor(tool, "--aml-dist=jax", *TWO_BY_TWO, status=0)
    assert {name for (name, _), row in rows.items() if row["verdict"] != "skip"} == {"jax", "amldist", "gpus"}
    assert all(row["reason"] for row in rows.values() if row["verdict"] == "skip")
    asked = doctor(tool, "--aml-dist=jax", *TWO_BY_TWO, "--framework", "tensorflow", status=1)
    assert asked["tensorflow", "srun"]["verdict"] == "alone"


@pytest.mark.parametrize("option", ["pytorch", "mpi"])
@pytest.mark.parametrize("framework", ["torch", "lightning", "deepspeed"])
def test_a_framework_alone_is_fine_where_the_step_is(tool, option, framework):
    """A launcher that nobody asked for, and that belongs to another sort of step, is no failure of this one."""
    rows = doctor(tool, f"--aml-dist={option}", *TWO_BY_TWO, "--framework", framework, status=0)
    assert {row["verdict"] for row in rows.values()} == {"fine", "skip"}
    doctor(tool, f"--aml-dist={option}", *TWO_BY_TWO, "--framework", framework, "--launcher", "torchrun", status=1)


@pytest.mark.parametrize("kind, changes, framework, verdict, words", [
    ("pytorch", ["MASTER_PORT=70000"], "torch", "fails", "70000 is not a port"),
    ("pytorch", ["MASTER_ADDR=n2"], "torch", "hangs", "the master is n2, but rank 0 is on n1: nobody listens there"),
    ("jax", ["JAX_COORDINATOR_ADDRESS=n2:20000"], "jax", "hangs", "the master is n2, but rank 0 is on n1"),
    ("pytorch", ["MASTER_ADDR=n2.cluster.example"], "lightning", "hangs", "but rank 0 is on n1"),
    ("pytorch", ["RANK=two"], "torch", "fails", "RANK is 'two', not a number"),
    ("pytorch", ["LOCAL_SIZE=4"], "deepspeed", "hangs", "LOCAL_SIZE equals WORLD_SIZE"),
    ("pytorch", ["SLURM_NNODES=1"], "lightning", "fails", "SLURM_NNODES=1 but the step has 2 nodes"),
    ("pytorch", ["SLURM_NTASKS=many"], "lightning", "fails", "SLURM_NTASKS is not a number"),
    ("pytorch", ["TORCHELASTIC_RUN_ID=x", "LOCAL_RANK"], "lightning", "fails", "KeyError: 'LOCAL_RANK'"),
    ("mpi", ["OMPI_COMM_WORLD_RANK=3"], "mpi", "warns", "MPI's rank is 0 but OMPI_COMM_WORLD_RANK is 3"),
    ("mpi", ["OMPI_COMM_WORLD_SIZE"], "horovod", "warns", "only one of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"),
    ("mpi", ["AZUREML_EXPERIMENT_ID=x", "LOCAL_RANK", "AZ_BATCH_MASTER_NODE"], "deepspeed", "fails",
     "KeyError: 'AZ_BATCH_MASTER_NODE'"),
    ("tensorflow", ["TF_CONFIG=[]"], "tensorflow", "fails", "not a JSON object"),
    ("tensorflow", ['TF_CONFIG={"cluster":{"worker":["a:1","a:1","b:1","b:2"]},"task":{"type":"worker","index":0}}'],
     "tensorflow", "fails", "'a:1' to two tasks"),
    ("tensorflow", ['TF_CONFIG={"cluster":{"worker":["127.0.0.1:1","b:1"]},"task":{"type":"worker","index":0}}'],
     "tensorflow", "hangs", "'127.0.0.1:1', a different machine on each node"),
    ("tensorflow", ['TF_CONFIG={"cluster":{"worker":["[::1]:1","b:1"]},"task":{"type":"worker","index":0}}'],
     "tensorflow", "hangs", "'[::1]:1', a different machine on each node"),
    ("tensorflow", ['TF_CONFIG={"cluster":{"worker":["a:1"]},"task":{"type":"worker"}}'], "tensorflow", "fails",
     "no task with type and index"),
    ("jax", ["JAX_COORDINATOR_ADDRESS", "SLURM_STEP_NODELIST=rack[0-1]b[0-1]"], "jax", "hangs", "JAX reads 'rack0'"),
    ("jax", ["JAX_COORDINATOR_ADDRESS=127.0.0.1:9"], "jax", "hangs", "different machine on each node"),
])
def test_sick_environments(tool, kind, changes, framework, verdict, words):
    row = doctor(tool, f"--aml-dist={kind}", *TWO_BY_TWO, *changed(*changes))[framework, "srun"]
    assert row["verdict"] == verdict and words in row["reason"] and row["remedy"], row


def test_uneven_nodes_are_nothing_for_lightning(tool):
    rows = doctor(tool, "--aml-dist=pytorch", "--nodelist", "n[1-2]", "--tasks-per-node", "2,1", status=1)
    assert rows["lightning", "srun"]["verdict"] == "fails" and "different numbers of tasks" in rows["lightning", "srun"]["reason"]
    assert rows["torch", "srun"]["verdict"] == "fine"


@pytest.mark.parametrize("arguments, environment, verdict", [
    (["--aml-dist=pytorch", *TWO_BY_TWO], "authenticated", "fine"),
    (["--aml-dist=none", *TWO_BY_TWO], "open", "warns"),
    (["--aml-dist=none", *TWO_BY_TWO, "--env", "AMLDIST_SECRET=require"], "open", "fails"),
    (["--aml-dist=none", *TWO_BY_TWO, "--env", f"AMLDIST_STEP_SECRET={64 * 'a'}"], "authenticated", "fine"),
    (["--aml-dist=none", *TWO_BY_TWO, "--mpi", "pmix"], "unproven", "warns"),
    (["--aml-dist=none", "--nodelist", "n1", "--tasks-per-node", "2"], "authenticated", "fine"),
])
def test_what_keeps_strangers_out_of_a_world(tool, arguments, environment, verdict):
    row = doctor(tool, *arguments, "--framework", "amldist", status=int(verdict == "fails"))["amldist", "-"]
    assert (row["environment"], row["verdict"]) == (environment, verdict)


@pytest.fixture
def python_with(tmp_path):
    """python_with(PACKAGES, FINDS): variables with a PATH that has a python3 with these distributions."""
    def make(packages: list[str], finds: bool) -> dict[str, str]:
        site = tmp_path / "lib/python3.11/site-packages"
        for package in packages:
            (site / f"{package}.dist-info").mkdir(parents=True)
        (site / "torch/distributed").mkdir(parents=True)
        (site / "torch/distributed/distributed_c10d.py").write_text('entry_points(group="torch.distributed.backends")' if finds else "")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python3").touch(mode=0o755)
        return {"PATH": f"{tmp_path}/bin"}
    return make


@pytest.mark.parametrize("packages, finds, key, environment, verdict, words", [
    (["torch-2.15.0", "amldist-0.1.0"], True, "", "PyTorch 2.15.0, amldist 0.1.0, entry point", "fine", ""),
    (["torch-2.6.0", "amldist-0.1.0"], False, "", "PyTorch 2.6.0, amldist 0.1.0, import", "warns", "looks for no entry points"),
    (["torch-2.15.0"], True, "", "", "skip", "no package amldist beside it"),
    (["torch-2.15.0"], True, ",backend=amldist", "", "fails", "no package amldist beside it"),
    ([], False, "", "", "skip", "no PyTorch beside the python3 in PATH"),
])
def test_the_backend_amldist_is_known_with_its_versions_and_how_it_is_found(tool, python_with, packages, finds, key, environment, verdict,
                                                                         words):
    row = doctor(tool, f"--aml-dist=pytorch{key}", *TWO_BY_TWO, "--framework", "torch-amldist", status=int(verdict == "fails"),
                 env=python_with(packages, finds))["torch-amldist", "-"]
    assert (row["environment"] or "", row["verdict"]) == (environment, verdict) and words in row["reason"], row


@pytest.mark.parametrize("gpus, tasks, verdict, words", [
    (4, 4, "fine", ""),
    (1, 4, "warns", "LOCAL_RANK goes up to 3"),
    (2, 4, "fails", "LOCAL_RANK goes up to 3"),
    (8, 4, "warns", "sees 8 GPUs but a node has 4 tasks"),
])
def test_gpus_against_tasks(tool, gpus, tasks, verdict, words):
    rows = doctor(tool, "--aml-dist=pytorch", "--nodelist", "n[1-2]", "--tasks-per-node", str(tasks), "--gpus-per-node", str(gpus))
    row = rows["gpus", "-"]
    assert row["verdict"] == verdict and words in row["reason"], row
    assert rows["accelerate", "srun"]["environment"] == "MULTI_GPU", "LOCAL_RANK is its trigger"


@pytest.mark.parametrize("option, tasks, changes, verdict, gpus, words", [
    ("pytorch", 2, ["CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"], "warns", "1 GPU", "lists 2 devices, but a process sees one MIG instance only"),
    ("pytorch,launch=per-node", 1, ["CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"], "warns", "1 GPU", "one MIG instance only"),
    ("pytorch", 4, ["CUDA_VISIBLE_DEVICES=0,1,2,3", "SLURM_STEP_GPUS=1"], "warns", "1 GPU", "but Slurm has bound 1 (SLURM_STEP_GPUS)"),
    ("pytorch", 2, ["ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=0,1"], "fine", "2 GPUs", ""),
    ("pytorch", 2, ["ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=0,4"], "warns", "1 GPU", "of which 1 exist within the 2 of ROCR"),
])
def test_gpus_are_counted_as_the_runtime_counts_them(tool, option, tasks, changes, verdict, gpus, words):
    row = doctor(tool, f"--aml-dist={option}", "--nodelist=n[1-2]", f"--tasks-per-node={tasks}", *changed(*changes))["gpus", "-"]
    assert (row["verdict"], row["environment"]) == (verdict, gpus) and words in row["reason"], row


def test_jax_and_a_gpu_that_the_task_does_not_see(tool):
    arguments = ["--aml-dist=jax", *TWO_BY_TWO, "--task", "3", "--gpus-per-node", "1"]
    assert doctor(tool, *arguments)["jax", "srun"]["verdict"] == "fine"
    row = doctor(tool, *arguments, "--env", "JAX_LOCAL_DEVICE_IDS", status=1)["jax", "srun"]
    assert row["verdict"] == "fails" and "device 1" in row["reason"]


@pytest.mark.parametrize("nccl, gloo, verdict", [
    ("eth", "eth0", "fine"),
    ("=eth0", "eth0", "fine"),
    ("^docker,lo", "eth0", "fine"),
    ("^eth", "eth0", "warns"),
    ("ib", "eth0", "warns"),
    ("=eth", "eth0", "warns"),
])
def test_interfaces_that_disagree(tool, nccl, gloo, verdict):
    rows = doctor(tool, "--aml-dist=pytorch", *TWO_BY_TWO, *changed(f"NCCL_SOCKET_IFNAME={nccl}", f"GLOO_SOCKET_IFNAME={gloo}"),
                  "--gpus-per-node", "2")
    assert rows["nccl", "-"]["verdict"] == verdict, rows["nccl", "-"]


def test_a_refused_step_is_a_row(tool):
    rows = doctor(tool, "--aml-dist=pytorch,launch=per-node", *TWO_BY_TWO, status=1)
    assert list(rows) == [("aml-dist", "srun")]
    assert "launch=per-node starts one launcher per node" in rows["aml-dist", "srun"]["reason"]


@pytest.mark.parametrize("option, tasks, words, verdict, reason, remedy", [
    ("pytorch", 8, "torchrun --nproc_per_node=8 t.py", "fails", "8 tasks on the node, each of which would start 8 processes (torchrun)",
     "use launch=per-node with --ntasks-per-node=1"),
    ("pytorch", 8, "bash -c 'cd x && deepspeed t.py'", "fails", "8 tasks on the node, each of which would start a node's processes",
     "leave deepspeed out (srun starts every process), or start it outside srun"),
    ("pytorch,launch=per-node", 1, "composer -n 8 t.py", "fails", "composer on each of 2 nodes is not told of the others", "write bash"),
    ("pytorch,launch=per-node", 1, "torchrun t.py", "fine", "", ""),
    ("mpi", 2, "python t.py", "fine", "", ""),
    ("pytorch", 8, "accelerate launch --config_file c t.py", "warns", "8 tasks on the node", "use launch=per-node"),
])
def test_a_launcher_as_the_program_is_judged_as_srun_does(tool, option, tasks, words, verdict, reason, remedy):
    rows = doctor(tool, f"--aml-dist={option}", "--nodelist=n[1-2]", f"--tasks-per-node={tasks}", "--framework=gpus", "--",
                  *shlex.split(words))
    row = next(row for (name, _), row in rows.items() if name == "command")
    assert row["verdict"] == verdict and row["reason"].startswith(reason) and row["remedy"].startswith(remedy), row


ENVIRONMENT = {"SLURM_JOB_ID": "9", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
               "SLURM_STEP_NUM_NODES": "2", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1",
               "MASTER_PORT": "20000", "NOTE": "two\nlines=of text"}


@pytest.mark.parametrize("separator", ["\n", "\0"])
def test_a_saved_environment(tool, tmp_path, separator):
    saved = tmp_path / "saved"
    saved.write_text("".join(f"{name}={value}{separator}" for name, value in ENVIRONMENT.items()))
    row = doctor(tool, "--env-file", str(saved), "--framework", "torch", "--launcher", "srun", status=0)["torch", "srun"]
    assert (row["rank"], row["size"], row["master"]) == (1, 2, "n1:20000")
    done = subprocess.run([str(tool.path), "doctor", "--json", "--env-file", "-", "--framework", "torch", "--launcher", "srun"],
                          input=saved.read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)[0] == row


@pytest.mark.parametrize("own, rank, master, verdict", [
    ("n1", "0", "n2", "hangs"), ("n2", "1", "n2", "hangs"), ("n2", "1", "n1", "fine"), ("n1", "0", "n1.cluster", "fine"),
    ("n1", "0", "n9", "fine"), ("n1", "0", "10.0.0.2", "fine"), ("n3", "2", "n2", "fine")])
def test_a_master_that_is_not_rank_zeros_host_in_a_task(tool, tmp_path, own, rank, master, verdict):
    env = ENVIRONMENT | {"SLURMD_NODENAME": own, "SLURM_PROCID": rank, "RANK": rank, "NODE_RANK": rank, "MASTER_ADDR": master,
                         "SLURM_STEP_NODELIST": "n[1-3]", "WORLD_SIZE": "3", "SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "3"}
    (tmp_path / "saved").write_text("\0".join(f"{name}={value}" for name, value in env.items()))
    row = doctor(tool, "--env-file", str(tmp_path / "saved"), "--framework", "torch", "--launcher", "srun")["torch", "srun"]
    assert row["verdict"] == verdict, row


def test_the_environment_that_env_really_writes(tool, tmp_path):
    for flag in ([], ["-0"]):
        saved = tmp_path / "saved"
        saved.write_bytes(subprocess.run(["env", *flag], env=ENVIRONMENT, capture_output=True, check=True).stdout)
        assert doctor(tool, "--env-file", str(saved), "--framework", "ignite", "--launcher", "srun")["ignite", "srun"]["rank"] == 1


def test_in_a_task(tool):
    rows = doctor(tool, env=ENVIRONMENT)
    assert rows["torch", "srun"]["rank"] == 1
    assert rows["locked memory", "-"]["verdict"] in ("skip", "fine", "warns", "fails"), "this machine's own limit"


# What a shell's `ulimit -l` would do, without the right to raise it.
OTHER_LIMIT = """
#include <stdlib.h>
struct rlimit { unsigned long rlim_cur, rlim_max; };
static int fill(struct rlimit* limit) {
  limit->rlim_cur = limit->rlim_max = strtoull(getenv("LIMIT"), NULL, 10);
  return 0;
}
int getrlimit(int resource, struct rlimit* limit) { return (void)resource, fill(limit); }
int getrlimit64(int resource, struct rlimit* limit) { return (void)resource, fill(limit); }
"""


@pytest.mark.parametrize("limit, verdict, environment", [
    (8 << 20, "fails", "8192 KiB"),
    (1 << 30, "warns", "1048576 KiB"),
    (2**64 - 1, "fine", "unlimited"),
])
def test_memory_that_rdma_may_pin(tool, tmp_path, limit, verdict, environment):
    """In a mount namespace of its own, where the machine has an InfiniBand device."""
    (tmp_path / "infiniband/mlx5_0").mkdir(parents=True)
    library = tmp_path / "limit.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=OTHER_LIMIT, text=True,
                   check=True)
    script = (f"mount --bind {tmp_path} /sys/class || exit 99; LIMIT={limit} LD_PRELOAD={library} "
              f"exec {tool.path} doctor --json --framework 'locked memory'")
    done = subprocess.run(["unshare", "--mount", "bash", "-c", script], env=ENVIRONMENT | {"PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode in (1, 99) and not done.stdout:
        pytest.skip(f"no mounts of one's own here: {done.stderr.strip()}")
    row, = json.loads(done.stdout)
    assert (row["framework"], row["verdict"], row["environment"]) == ("locked memory", verdict, environment), row
    assert ("ulimit -l is finite" in row["reason"]) == (verdict != "fine")
    assert done.returncode == (1 if verdict == "fails" else 0)


def test_host_files_and_frameworks_that_find_rank_0_by_themselves(tool, tmp_path):
    hosts = tmp_path / "hosts"
    for order, verdict in (("n2 n1 n1 n2", "hangs"), ("n1 n2 n2 n1", "fine")):
        hosts.write_text(order.replace(" ", "\n"))
        arguments = ["--nodelist", "n[1-2]", "--hostfile", str(hosts), "--env", "SLURM_NTASKS_PER_NODE=2"]
        alone = doctor(tool, "--aml-dist=none", *arguments)
        for framework in ("jax", "ignite", "lightning"):
            row = alone[framework, "srun"]
            assert row["verdict"] == verdict and row["master"].startswith("n1:"), row
            assert verdict == "fine" or "but rank 0 is on 'n2'" in row["reason"]
        for framework, kind in (("jax", "jax"), ("ignite", "pytorch"), ("lightning", "pytorch")):
            row = doctor(tool, f"--aml-dist={kind}", *arguments)[framework, "srun"]
            assert row["verdict"] == "fine" and row["master"].startswith(order[:2] + ":"), row


def test_in_a_child_of_torchrun(tool):
    rows = doctor(tool, env=ENVIRONMENT | {"SLURM_STEP_NUM_NODES": "1", "TORCHELASTIC_RUN_ID": "none",
                                           "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert {launcher for _, launcher in rows} == {"torchrun", "-"}
    assert rows["lightning", "torchrun"]["environment"] == "TorchElasticEnvironment"
    assert rows["torch", "torchrun"]["verdict"] == "fine"


@pytest.mark.parametrize("words, arguments", [
    ("this process is not a task of a step", []),
    ("cannot be combined", ["--env-file", "/dev/null", *TWO_BY_TWO]),
    ("no NAME=VALUE in it", ["--env-file", "/dev/null"]),
    ("does not exist: the step has 4 tasks", [*TWO_BY_TWO, "--task", "4"]),
    ("does not know 'caffe'", [*TWO_BY_TWO, "--framework", "caffe"]),
    ("give NAME=VALUE", [*TWO_BY_TWO, "--env", "=x"]),
    ("about an imagined step", ["--task", "1"]),
    ("did you mean 'pytorch'", [*TWO_BY_TWO, "--aml-dist=pytroch"]),
    ("--mpi", [*TWO_BY_TWO, "--mpi", "pmi9"]),
    ("--verbose", ["--verbose"]),
])
def test_bad_input_is_one_sentence_and_status_2(tool, words, arguments):
    done = tool.run("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("aml-dist: ") and done.stderr.count("\n") == 1 and words in done.stderr, done.stderr


def test_a_saved_environment_that_is_not_there(tool):
    done = tool.run("doctor", "--env-file", "/nowhere")
    assert (done.returncode, done.stdout) == (4, "") and "'/nowhere' cannot be read" in done.stderr, done


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", b"=\n=\n", b"x" * 300_000, b"\0" * 1000])
def test_hostile_files(tool, tmp_path, content):
    saved = tmp_path / "saved"
    saved.write_bytes(content)
    done = tool.run("doctor", "--env-file", str(saved))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and len(done.stderr) < 300


@pytest.mark.parametrize("value", ["", " ", "-1", "99999999999999999999", "1e3", "\x1b[31m", "a" * 5000, "\xff"])
def test_hostile_values_make_no_noise(tool, value):
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "TF_CONFIG",
             "SLURM_STEP_NODELIST", "JAX_COORDINATOR_ADDRESS", "SLURM_GTIDS", "PET_NNODES", "NCCL_SOCKET_IFNAME",
             "AMLDIST_STAMP", "SLURM_JOB_ID", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_DISTRIBUTION", "LOCAL_SIZE")
    for name in names:
        rows = doctor(tool, env=ENVIRONMENT | {name: value})
        assert rows
        assert "\x1b" not in tool.run("doctor", env=ENVIRONMENT | {name: value}).stdout


@pytest.mark.parametrize("value", ["", "[", "]", "n[", "n[1-", "n[1,]x[", "[]", ",", " ", "n[9-1]", "\x1b[31m,a", "a" * 5000, "[" * 3000])
def test_hostile_lists_make_no_noise(tool, value):
    alone = {name: text for name, text in ENVIRONMENT.items() if name.startswith("SLURM")}
    for distribution in ({}, {"SLURM_DISTRIBUTION": "arbitrary"}):
        lists = dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), value)
        env = alone | lists | distribution | {"SLURM_LOCALID": "0", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "1"}
        assert doctor(tool, env=env)["jax", "srun"]
        assert "\x1b" not in tool.run("doctor", env=env).stdout


def test_the_page_for_people(tool):
    done = tool.run("doctor", "--aml-dist=mpi", *TWO_BY_TWO, "--mpi", "none")
    assert done.returncode == 1 and done.stderr == ""
    head, *_ = done.stdout.splitlines()
    assert head.split() == ["FRAMEWORK", "LAUNCHER", "ENVIRONMENT", "RANK", "SIZE", "MASTER", "VERDICT"]
    assert "\nfails: horovod, mpi, mpi4py\n" in done.stdout and "  remedy: srun --mpi=pmix\n" in done.stdout
    assert done.stdout.index("\nfails: ") < done.stdout.index("\nskip: ")
