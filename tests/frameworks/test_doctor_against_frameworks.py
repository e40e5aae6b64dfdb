"""The doctor's verdict against what the framework then does, in one and the same task.

Each case starts a step on the live cluster. Every task of it writes what the doctor says of its environment, and then
starts the framework in that same environment. The verdict must come true: `fine` trains with the rank and size that the
doctor named, `fails` ends with the words that it quoted, `hangs` does not end, `alone` ends well with too few
processes.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import tempfile

import pytest
from cluster import readable_copy
from conftest import DEBIAN, FOLDER, VENV, need, need_debian

HERE = pathlib.Path(__file__).resolve().parent
HANG = 18  # seconds after which a framework that has not met its peers is taken to hang


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    framework: str
    verdict: str
    srun: str = "-N2 -n4 --ntasks-per-node=2 --aml-dist=pytorch"
    change: str = ""  # shell lines in the task, before both
    program: str = ""  # how the probe is started; by default by python3 itself
    words: str = ""  # what the script would say
    launcher: str = "srun"
    quote: str = ""  # words of the error, in the doctor's reason and in the framework's output
    size: int = 4  # processes that there should be
    needs: tuple[str, ...] = ()
    debian: bool = False
    rank_zero_is_well: bool = False  # what is wrong does not show in its own environment
    loopback_name: bool = False
    env: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.framework}-{self.launcher}: {self.name}".replace(" ", "_")


PER_NODE = "-N2 -n2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node,nproc_per_node=2"
PLAIN = "-N2 -n2 --ntasks-per-node=1"
PLAIN_TWO = "-N2 -n4 --ntasks-per-node=2"
TORCHRUN = "torchrun"
LAUNCH = ("python3 -m torch.distributed.launch --nproc_per_node 2 --nnodes 2 --node_rank $NODE_RANK "
          "--master_addr $MASTER_ADDR --master_port $MASTER_PORT --use_env")
ACCELERATE = ("accelerate launch --multi_gpu --num_machines 2 --num_processes 4 --machine_rank $NODE_RANK --main_process_ip "
              "$MASTER_ADDR --main_process_port $MASTER_PORT --mixed_precision no --dynamo_backend no")
MPI = "-N2 -n4 --ntasks-per-node=2 --aml-dist=mpi --mpi=pmix"
TF = "-N2 -n2 --ntasks-per-node=1 --aml-dist=tensorflow"
TF_HERE = "-N1 -n2 --aml-dist=tensorflow"
ONE_ADDRESS = r"""'{"cluster":{"worker":["node1:23456","node1:23456"]},"task":{"type":"worker","index":'$SLURM_PROCID'}}'"""
OWN_CLUSTER = """'{"cluster":{"worker":["localhost:23456"]},"task":{"type":"worker","index":0}}'"""
JAX = "-N2 -n4 --ntasks-per-node=2 --aml-dist=jax"
DEVICES = "You set `devices=2` in Lightning, but the number of tasks per node configured in SLURM "
INTERACTIVE = "export SLURM_JOB_NAME=interactive"

CASES = [
    # torch.distributed, env://
    Case("healthy", "torch", "fine"),
    Case("without a master", "torch", "fails", change="unset MASTER_ADDR",
         quote="environment variable MASTER_ADDR expected, but not set"),
    Case("without the option", "torch", "fails", srun="-N2 -n4",
         quote="environment variable RANK expected, but not set"),
    Case("an agent's store without an agent", "torch", "hangs", change="export TORCHELASTIC_USE_AGENT_STORE=True"),
    Case("a loopback master", "torch", "hangs", change="export MASTER_ADDR=127.0.0.1"),
    Case("a world larger than the step", "torch", "hangs", change="export WORLD_SIZE=8"),
    Case("the same rank everywhere", "torch", "hangs", change="export RANK=0", rank_zero_is_well=True),
    Case("port 0", "torch", "hangs", change="export MASTER_PORT=0"),
    Case("a rank beyond the world", "torch", "hangs", change="export RANK=9"),
    Case("each its own world", "torch", "alone",
         change="export WORLD_SIZE=1 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_PROCID))"),
    Case("each its own world at one address", "torch", "fails", change="export WORLD_SIZE=1 RANK=0"),
    Case("an interface in NCCL's notation", "torch", "fails", change="export GLOO_SOCKET_IFNAME=^lo,docker",
         quote="Unable to find address for: ^lo"),
    Case("the loopback interface", "torch", "fails", change="export GLOO_SOCKET_IFNAME=lo"),
    Case("a loopback name without our interface", "torch", "fails", change="unset GLOO_SOCKET_IFNAME",
         loopback_name=True, quote="127.0.1.1"),
    Case("a loopback name", "torch", "fine", loopback_name=True),
    Case("healthy on Debian's PyTorch", "torch", "fine", debian=True),
    # launchers
    Case("healthy", "torch", "fine", PER_NODE, program=TORCHRUN, launcher="torchrun"),
    Case("without the option", "torch", "alone", PLAIN, program=TORCHRUN, launcher="torchrun", size=2),
    Case("standalone", "torch", "hangs", PER_NODE, "export PET_STANDALONE=1", TORCHRUN, launcher="torchrun"),
    Case("every node the first", "torch", "hangs", PER_NODE, "unset PET_NODE_RANK", TORCHRUN, launcher="torchrun"),
    Case("without a master", "torch", "hangs", PER_NODE, "unset PET_MASTER_ADDR", TORCHRUN, launcher="torchrun"),
    Case("for GPUs that are not there", "torch", "fails", PER_NODE, "export PET_NPROC_PER_NODE=gpu", TORCHRUN,
         launcher="torchrun", quote="Cuda is not available"),
    Case("one in each of two tasks", "torch", "fails", "-N2 -n4 --ntasks-per-node=2 --aml-dist=pytorch",
         "export PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_NODE_RANK=$NODE_RANK PET_MASTER_ADDR=$MASTER_ADDR "
         "PET_MASTER_PORT=29511",
         TORCHRUN, launcher="torchrun", quote="EADDRINUSE"),
    Case("a node too many", "torch", "hangs", PER_NODE, "export PET_NNODES=3", TORCHRUN, launcher="torchrun"),
    Case("Debian's PyTorch", "torch", "fails", PER_NODE, program=TORCHRUN, launcher="torchrun", debian=True,
         quote="'NoneType' object has no attribute 'get'"),
    Case("Debian's PyTorch with the cure", "torch", "fine", PER_NODE, "export PET_REDIRECTS=1 PET_TEE=1", TORCHRUN,
         launcher="torchrun", debian=True),
    Case("healthy", "torch", "fine", PER_NODE, program=LAUNCH, launcher="torch.distributed.launch"),
    Case("without the option", "torch", "fails", PLAIN, program=LAUNCH, launcher="torch.distributed.launch"),
    Case("a loopback master", "torch", "hangs", PER_NODE, "export MASTER_ADDR=127.0.0.1", LAUNCH,
         launcher="torch.distributed.launch"),
    # Lightning
    Case("healthy", "lightning", "fine", words="2 2", needs=("lightning",)),
    Case("healthy", "lightning", "fine", "-N2 -n4 --exclusive --aml-dist=pytorch", words="2 2", needs=("lightning",)),
    Case("without --ntasks-per-node and without the option", "lightning", "fails", "-N2 -n4 --exclusive", words="2 2",
         change="unset SLURM_NTASKS_PER_NODE", quote="You set `--ntasks=4` in your SLURM bash script",
         needs=("lightning",)),
    Case("uneven nodes", "lightning", "fails", "-N2 -n3 --aml-dist=pytorch", words="2 2", size=3, needs=("lightning",)),
    Case("an inherited --ntasks-per-node", "lightning", "fails", words="2 2", change="export SLURM_NTASKS_PER_NODE=4",
         quote=DEVICES + "`--ntasks-per-node=4`",
         needs=("lightning",)),
    Case("interactive, with mpi4py and no PMIx", "lightning", "fails", words="2 2", change=INTERACTIVE,
         quote="MPI_Init", needs=("lightning", "mpi4py")),
    Case("interactive, with mpi4py and PMIx", "lightning", "fine", MPI, words="2 2", change=INTERACTIVE,
         needs=("lightning", "mpi4py")),
    Case("one process per node starts the others", "lightning", "fine", PER_NODE, words="2 2", needs=("lightning",)),
    Case("the same with Slurm's variables", "lightning", "fails", PER_NODE + ",slurm_env=keep", words="2 2",
         quote=DEVICES + "`--ntasks-per-node=1`",
         needs=("lightning",)),
    Case("the same with PMIx, interactive", "lightning", "alone", PER_NODE + ",slurm_env=keep --mpi=pmix", words="2 2",
         change=INTERACTIVE, needs=("lightning", "mpi4py")),
    Case("healthy", "lightning", "fine", PER_NODE, program=TORCHRUN, launcher="torchrun", words="2 2",
         needs=("lightning",)),
    Case("torchrun's mark without torchrun", "lightning", "fine", words="2 2", change="export TORCHELASTIC_RUN_ID=none",
         needs=("lightning",)),
    Case("by its own rule", "lightning", "fine", PLAIN_TWO, words="2 2", needs=("lightning",)),
    Case("a host file without the option", "lightning", "hangs", "-N2 -n4", "export SLURM_NTASKS_PER_NODE=2",
         words="2 2", needs=("lightning",), env=(("SLURM_HOSTFILE", "node2 node2 node1 node1"),)),
    Case("a list that it misreads", "lightning", "hangs", PLAIN_TWO, "export SLURM_NODELIST=rack[0-1]b[0-1]",
         words="2 2", needs=("lightning",)),
    Case("one process per node without NODE_RANK", "lightning", "hangs", PER_NODE, "unset NODE_RANK", words="2 2",
         needs=("lightning",)),
    Case("one process per node without a master", "lightning", "hangs", PER_NODE, "unset MASTER_ADDR MASTER_PORT",
         words="2 2", needs=("lightning",)),
    Case("each task the first of its node", "lightning", "fails", words="2 2",
         change="unset SLURM_NTASKS SLURM_STEP_ID LOCAL_RANK", needs=("lightning",)),
    Case("each task the first of its own world", "lightning", "alone", "-N1 -n2", words="1 2",
         change="unset SLURM_NTASKS SLURM_STEP_ID", needs=("lightning",)),
    # Hugging Face
    Case("healthy, with the word", "accelerate", "fine", change="export ACCELERATE_USE_CPU=true",
         needs=("accelerate",)),
    Case("healthy, without the word", "accelerate", "warns", needs=("accelerate",)),
    Case("WORLD_SIZE alone", "accelerate", "hangs", PLAIN, "export ACCELERATE_USE_CPU=true WORLD_SIZE=2 "
         "MASTER_PORT=29512 MASTER_ADDR=$(getent hosts node1 | cut -d' ' -f1)", size=2, needs=("accelerate",),
         rank_zero_is_well=True),
    Case("Open MPI's names alone", "accelerate", "fine", MPI,
         "export ACCELERATE_USE_CPU=true; unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE", needs=("accelerate",)),
    Case("without the option", "accelerate", "alone", PLAIN, "export ACCELERATE_USE_CPU=true", size=2,
         needs=("accelerate",)),
    Case("without a master", "accelerate", "fails", change="export ACCELERATE_USE_CPU=true; unset MASTER_ADDR",
         quote="Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set",
         needs=("accelerate",)),
    Case("without a master", "accelerate", "fails", PER_NODE, "export ACCELERATE_USE_CPU=true; unset MASTER_ADDR",
         ACCELERATE, launcher="accelerate launch", needs=("accelerate",)),
    Case("healthy", "accelerate", "fine", PER_NODE, "export ACCELERATE_USE_CPU=true", TORCHRUN, launcher="torchrun",
         needs=("accelerate",)),
    Case("healthy", "accelerate", "fine", PER_NODE, "export ACCELERATE_USE_CPU=true", ACCELERATE,
         launcher="accelerate launch", needs=("accelerate",)),
    Case("healthy, with the word", "transformers", "fine", change="export ACCELERATE_USE_CPU=true",
         needs=("transformers",)),
    Case("healthy, without the word", "transformers", "warns", needs=("transformers",)),
    # DeepSpeed
    Case("healthy", "deepspeed", "fine", needs=("deepspeed",)),
    Case("without LOCAL_RANK and PMIx", "deepspeed", "fails", change="unset LOCAL_RANK", quote="MPI_Init",
         needs=("deepspeed", "mpi4py")),
    Case("without LOCAL_RANK", "deepspeed", "fine", MPI, "unset LOCAL_RANK", needs=("deepspeed", "mpi4py")),
    Case("on Azure ML", "deepspeed", "fine", MPI,
         "unset LOCAL_RANK; export AZUREML_EXPERIMENT_ID=x NCCL_SOCKET_IFNAME=eth0", needs=("deepspeed",)),
    Case("on Azure ML without an interface", "deepspeed", "fails", MPI,
         "unset LOCAL_RANK; export AZUREML_EXPERIMENT_ID=x",
         quote="KeyError: 'NCCL_SOCKET_IFNAME'", needs=("deepspeed",)),
    Case("two local ranks", "deepspeed", "fails", MPI, "export OMPI_COMM_WORLD_LOCAL_RANK=7",
         quote="not sure how to proceed", needs=("deepspeed",)),
    Case("memory that the nodes do not share", "deepspeed", "hangs", change="export LOCAL_SIZE=4",
         needs=("deepspeed",)),
    Case("without ninja", "deepspeed", "fails",
         change="mkdir -p /tmp/bin; ln -sf /usr/bin/timeout /tmp/bin; PATH=/tmp/bin",
         program=f"{VENV}/bin/python3", quote="due to ninja not being installed", needs=("deepspeed",)),
    # Ignite
    Case("healthy", "ignite", "fine", needs=("pytorch-ignite",)),
    Case("by its own rule", "ignite", "fine", "-N2 -n4", needs=("pytorch-ignite",)),
    Case("a host file without the option", "ignite", "hangs", "-N2 -n3", size=3, needs=("pytorch-ignite",),
         env=(("SLURM_HOSTFILE", "node2 node1 node1"),)),
    Case("a rank that is not Slurm's", "ignite", "fails", change="export LOCAL_RANK=5", quote="LOCAL_RANK: 5 vs",
         needs=("pytorch-ignite",)),
    Case("under torchrun", "ignite", "warns", PER_NODE, program=TORCHRUN, launcher="torchrun",
         quote="SLURM distributed configuration is missing 'SLURM_NTASKS'", needs=("pytorch-ignite",)),
    # MPI
    Case("healthy", "mpi4py", "fine", MPI, needs=("mpi4py",)),
    Case("without PMIx", "mpi4py", "fails", MPI.replace("pmix", "none"), quote="MPI_Init", needs=("mpi4py",)),
    Case("without PMIx, Slurm hidden", "mpi4py", "alone", MPI.replace("pmix", "none"), "unset SLURM_STEP_ID",
         needs=("mpi4py",)),
    Case("healthy", "horovod", "fine", MPI, needs=("horovod",)),
    Case("without PMIx", "horovod", "fails", MPI.replace("pmix", "none"), quote="MPI_Init", needs=("horovod",)),
    Case("half a pair", "horovod", "warns", MPI, "unset OMPI_COMM_WORLD_SIZE", words="pairs", needs=("horovod",),
         quote="only one of OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"),
    # TensorFlow
    Case("healthy", "tensorflow", "fine", TF, size=2, needs=("tensorflow-cpu",)),
    Case("without the option", "tensorflow", "alone", PLAIN, size=2, needs=("tensorflow-cpu",)),
    Case("no JSON", "tensorflow", "fails", TF, "export TF_CONFIG='{\"cluster\"'", size=2, quote="JSONDecodeError",
         needs=("tensorflow-cpu",)),
    Case("a task that the cluster does not have", "tensorflow", "fails", TF,
         "export TF_CONFIG=${TF_CONFIG/\\\"type\\\":\\\"worker\\\"/\\\"type\\\":\\\"chief\\\"}", size=2,
         quote="ValueError", needs=("tensorflow-cpu",)),
    Case("a worker that never comes", "tensorflow", "hangs", TF,
         "export TF_CONFIG=${TF_CONFIG/]/,\\\"node2:23456\\\"]}", size=2, needs=("tensorflow-cpu",)),
    Case("one address for two tasks of a node", "tensorflow", "fails", TF_HERE, f"export TF_CONFIG={ONE_ADDRESS}",
         size=2, quote="Could not start gRPC server", needs=("tensorflow-cpu",)),
    Case("loopback addresses", "tensorflow", "hangs", TF,
         "export TF_CONFIG=$(sed -E 's/\"[^\"]*:([0-9]+)\"/\"127.0.0.1:\\1\"/g' "
         "<<<\"$TF_CONFIG\")", size=2, needs=("tensorflow-cpu",)),
    Case("each its own cluster", "tensorflow", "alone", TF, f"export TF_CONFIG={OWN_CLUSTER}", size=2,
         needs=("tensorflow-cpu",)),
    Case("Keras 3", "keras", "warns", TF, size=2, quote="Attempt to convert a value (PerReplica:{",
         needs=("tensorflow-cpu",)),
    Case("Keras 2", "keras", "fine", TF, "export TF_USE_LEGACY_KERAS=1", size=2, needs=("tensorflow-cpu", "tf-keras")),
    # JAX
    Case("healthy", "jax", "fine", JAX, needs=("jax",)),
    Case("by its own rule", "jax", "fine", "-N2 -n4", needs=("jax",)),
    Case("a list that it misreads", "jax", "hangs", "-N2 -n4", "export SLURM_STEP_NODELIST=rack[0-1]b[0-1]",
         needs=("jax",)),
    Case("a loopback coordinator", "jax", "hangs", JAX, "export JAX_COORDINATOR_ADDRESS=127.0.0.1:23456",
         needs=("jax",)),
    Case("a count that is larger than the step", "jax", "hangs", JAX, "export SLURM_NTASKS=8", needs=("jax",)),
    Case("each its own list and count", "jax", "alone", PLAIN, size=2, needs=("jax",),
         change="export SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_NODELIST=$SLURMD_NODENAME"),
    Case("an address without a port", "jax", "fails", JAX, "export JAX_COORDINATOR_ADDRESS=node1",
         quote="IndexError: list index out of range", needs=("jax",)),
    Case("Slurm's count hidden", "jax", "fails", JAX, "unset SLURM_NTASKS",
         quote="Number of processes must be defined.", needs=("jax",)),
    Case("mpirun's mark", "jax", "fails", JAX, "export OMPI_MCA_orte_hnp_uri=1.0",
         quote="KeyError: 'OMPI_COMM_WORLD_SIZE'", needs=("jax",)),
    Case("a loopback name", "jax", "warns", JAX, loopback_name=True, quote="Gloo context initialization failed",
         needs=("jax",)),
    Case("a host file", "jax", "fine", "-N2 -n3 --aml-dist=jax", size=3, needs=("jax",),
         env=(("SLURM_HOSTFILE", "node2 node1 node1"),)),
    Case("a host file without the option", "jax", "hangs", "-N2 -n3", size=3, needs=("jax",),
         env=(("SLURM_HOSTFILE", "node2 node1 node1"),)),
]


@dataclasses.dataclass
class Outcome:
    """What the tasks of a step said and did."""

    findings: list[dict]  # by task
    observed: list[dict]
    status: int
    output: str
    timed_out: bool


@pytest.fixture
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-doctor-", dir="/var/tmp"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run_case(cluster, tool, folder: pathlib.Path, case: Case) -> Outcome:
    probe = readable_copy(HERE / "framework_probe.py")
    start = f"{case.program or 'python3'} {probe} {case.framework} {case.words}"
    seconds = HANG if case.verdict == "hangs" else 90
    (folder / "task").write_text("\n".join([
        "#!/bin/bash", "task=$SLURM_PROCID", case.change,
        f"{tool} doctor --json --framework {case.framework} --launcher '{case.launcher}' >{folder}/$task.json",
        f"exec timeout -k 2 {seconds} {start}", ""]))
    (folder / "task").chmod(0o755)
    env = {"PATH": DEBIAN if case.debian else f"{VENV}/bin:{DEBIAN}", "OMP_NUM_THREADS": "1",
           "TORCH_EXTENSIONS_DIR": str(FOLDER / "extensions"), "PYTHONPYCACHEPREFIX": str(FOLDER / "pycache")}
    distribution = ""
    for name, value in case.env:
        (folder / name).write_text("\n".join(value.split()) + "\n")
        env[name] = str(folder / name)
        distribution = "--distribution=arbitrary"
    srun = f"srun --kill-on-bad-exit={int(case.verdict == 'fails')} --job-name=train {distribution} {case.srun}"
    done = cluster.run(f"{srun} {folder}/task", env=env, timeout=100)
    output = done.out + done.err
    findings = [json.loads(path.read_text())[0] for path in sorted(folder.glob("*.json"),
                                                                   key=lambda path: int(path.stem))]
    observed = [json.loads(line) for line in re.findall(r"observed: (\{.*\})", output)]
    # TensorFlow does not heed SIGTERM. Where something fails it is Slurm that kills the others.
    ended = r"exit code 124|Killed" if case.verdict == "hangs" else r"exit code 124"
    return Outcome(findings, observed, done.status, output, re.search(ended, output) is not None)


def check_started(case: Case, outcome: Outcome) -> None:
    """Everybody met, and with the numbers that the doctor had named."""
    assert outcome.status == 0 and len(outcome.observed) == case.size, outcome.output
    assert sorted(each["rank"] for each in outcome.observed) == list(range(case.size)), outcome.observed
    assert {each["size"] for each in outcome.observed} == {case.size}
    assert {finding["size"] for finding in outcome.findings} <= {case.size, None}
    ranks = [finding["rank"] for finding in outcome.findings]
    assert all(rank is None for rank in ranks) or sorted(ranks) == list(range(case.size)), ranks
    masters = {each["master"] for each in outcome.observed} - {None}
    assert len(masters) <= 1 and {finding["master"] for finding in outcome.findings} - {""} <= masters, outcome.findings
    named = {each["environment"] for each in outcome.observed} - {None}
    if named:
        assert {finding["environment"] for finding in outcome.findings} == named


def check_outcome(case: Case, outcome: Outcome) -> None:
    verdict = case.verdict
    if verdict == "fine":
        check_started(case, outcome)
    elif verdict == "alone":
        assert outcome.status == 0 and outcome.observed, outcome.output
        assert max(each["size"] for each in outcome.observed) < case.size, outcome.observed
    elif verdict == "hangs":
        assert outcome.timed_out and len(outcome.observed) < case.size, outcome.output
    elif verdict == "fails":
        assert outcome.status != 0 and not outcome.timed_out and len(outcome.observed) < case.size, outcome.output
        assert case.quote in outcome.output, outcome.output


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_verdict_comes_true(cluster, tool, folder, case):
    if case.debian:
        need_debian("torch", "python3-torch")
    else:
        need(*(case.needs or ("torch",)))
    if case.loopback_name:
        assert cluster.devcluster("break", "all", "loopback-name").status == 0
    try:
        outcome = run_case(cluster, tool, folder, case)
    finally:
        if case.loopback_name:
            assert cluster.devcluster("heal", "all").status == 0
    said = [finding["verdict"] for finding in outcome.findings]
    expected = [case.verdict] * len(said)
    if case.rank_zero_is_well:
        expected[0] = "fine"
    assert said and said == expected, (outcome.findings, outcome.output)
    if case.quote and case.verdict in ("fails", "warns"):
        assert all(case.quote.split("(")[0] in finding["reason"] for finding in outcome.findings), outcome.findings
    if case.verdict == "warns":
        check_warning(cluster, tool, folder, case, outcome)
    else:
        check_outcome(case, outcome)


def check_warning(cluster, tool, folder, case: Case, outcome: Outcome) -> None:
    """What depends on the script: as the reason says without the script's word, and well with it."""
    if case.quote:
        assert case.quote in outcome.output and outcome.status != 0, outcome.output
        return
    assert {each["size"] for each in outcome.observed} == {1}, outcome.output  # each alone
    check_started(case, run_case(cluster, tool, folder, dataclasses.replace(case, words="cpu")))
