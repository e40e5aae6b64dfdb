"""The examples of docs/clients.md, each with the real client on the real cluster: `tests/frameworks/install --clients`."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile
import time

import pytest
from conftest import DEBIAN, FOLDER, ROOT, VENV
from conftest import need as need_framework

CLIENTS = pathlib.Path(os.environ.get("AMLDIST_CLIENTS", FOLDER / "clients"))
PLACES = [CLIENTS / "venv", CLIENTS / "trainers"]
PAGE = (ROOT / "docs/clients.md").read_text()
TRAIN = "import os\nprint('rank', *[os.environ.get(name, 'none') for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'NODE_RANK')], flush=True)\n"
RANKS = [f"rank {rank} 4 {rank % 2} {rank // 2}" for rank in range(4)]
EXAMPLES = {  # section: the client's module, what is run where the page has no command, the file with the output, lines in it
    "submitit": ("submitit", "python launch.py", None, [r"\[\(0, 4\), \(1, 4\), \(2, 4\), \(3, 4\)\]"]),
    "Hydra's submitit launcher": ("hydra_plugins.hydra_submitit_launcher", None, "multirun/*/*/.submitit/*/*_log.out",
                                  [f"rank {rank} of 4" for rank in range(4)]),
    "TorchX": ("torchx", None, "slurm-*.out", ["rank none none none 0", "rank none none none 1"]),
    "dask-jobqueue": ("dask_jobqueue", "python launch.py", None, [r"ranks \[None, None\]"]),
    "dask-mpi": ("dask_mpi", None, None, [r"ranks \['2', '3'\]"]),
    "Parsl": ("parsl", "python launch.py", None, [r"ranks \[None, None\]"]),
    "Snakemake": ("snakemake_executor_plugin_slurm", None, "model", RANKS),
    "simple-slurm": ("simple_slurm", "python launch.py", "out.txt", RANKS),
}
MMENGINE = ("import torch\ntorch.cuda.set_device = lambda _: None  # it wants a GPU, whatever the back end is\nfrom mmengine import dist\n"
            "dist.init_dist('{}', backend='gloo')\nprint('rank', dist.get_rank(), dist.get_world_size(), flush=True)\n")
COMPOSER = """import os, torch
from composer import Trainer
from composer.models import ComposerModel
from composer.utils import dist


class Model(ComposerModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, batch):
        return self.layer(batch)

    def loss(self, outputs, batch):
        return outputs.square().mean()


data = torch.utils.data.DataLoader(torch.ones(32, 2), batch_size=4, sampler=dist.get_sampler(torch.ones(32, 2)))
Trainer(model=Model(), train_dataloader=data, max_duration="1ep", device="cpu", progress_bar=False).fit()
print("rank", dist.get_global_rank(), dist.get_world_size(), flush=True)
os._exit(0)  # PyTorch with Gloo may abort at its end
"""
LIGHTNING = """import os, time
import lightning, torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        time.sleep(0.2)
        return self.layer(batch).square().mean()

    def on_train_start(self):
        print("rank", self.global_rank, "begins at", self.global_step, "restart", os.environ.get("SLURM_RESTART_COUNT", 0), flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.ones(2000, 2), batch_size=2)
lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_steps=60, logger=False, enable_progress_bar=False).fit(Model(), data)
print("trained", flush=True)
"""
PROGRAMS = {  # of the page's table; the others are in frameworks.md
    "ColossalAI": ("colossalai", "import colossalai, torch.distributed as dist\ncolossalai.launch_from_torch()\n"
                   "print('rank', dist.get_rank(), dist.get_world_size(), flush=True)\n"),
    "ColossalAI's launch_from_slurm": ("colossalai", "import colossalai, os, torch.distributed as dist\n"
                                       "colossalai.launch_from_slurm(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
                                       "print('rank', dist.get_rank(), dist.get_world_size(), flush=True)\n"),
    "Composer": ("composer", COMPOSER),
    "Fabric": ("lightning_fabric", "from lightning_fabric import Fabric\nfabric = Fabric(accelerator='cpu', devices=2, num_nodes=2, strategy='ddp')\n"
               "fabric.launch()\nprint('rank', fabric.global_rank, fabric.world_size)\n"),
    "accelerate": ("accelerate", "from accelerate import Accelerator\na = Accelerator(cpu=True)\nprint('rank', a.process_index, a.num_processes)\n"),
    "Ignite": ("ignite", "import ignite.distributed as idist\nwith idist.Parallel(backend='gloo') as p:\n"
               "    p.run(lambda _: print('rank', idist.get_rank(), idist.get_world_size(), flush=True))\n"),
    "MMEngine --launcher pytorch": ("mmengine", MMENGINE.format("pytorch")),
    "MMEngine --launcher slurm": ("mmengine", MMENGINE.format("slurm")),
    "mpi4py": ("mpi4py", "from mpi4py import MPI\nprint('rank', MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, flush=True)\n"),
}


def need(module: str) -> pathlib.Path:
    """The environment that has it."""
    for place in PLACES:
        if list(place.glob(f"lib/python3.*/site-packages/{module.replace('.', '/')}")):
            return place
    pytest.skip(f"{module} is not installed: run tests/frameworks/install --clients")


def section(title: str) -> list[tuple[str, str]]:
    """The code blocks of a section, with their language."""
    body = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```(\w+)\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(cluster):
    """A command as a user gives it on the login machine, in a folder of his own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-clients-", dir="/var/tmp"))
    (folder / "train.py").write_text(TRAIN)
    os.chown(folder, int(cluster.run("id -u alice").out), -1)
    folder.chmod(0o755)

    def start(command: str, place: pathlib.Path = PLACES[0]):
        variables = {"PATH": f"{place}/bin:{DEBIAN}", "HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        return cluster.run(f"cd {folder} && {command}", user="alice", env=variables, timeout=300)

    yield folder, start
    cluster.run("squeue -h -u alice -o %A | xargs -r scancel")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_example_of_the_page(run, title):
    module, command, output, lines = EXAMPLES[title]
    need(module)
    folder, start = run
    for language, text in section(title):
        if language == "python":
            name = re.match(r"# (\S+)\n", text)[1]
            (folder / name).write_text(text)
        else:
            command = text.strip()
    if title == "Snakemake":  # the development cluster keeps no accounts
        command += " --slurm-status-command squeue --slurm-init-seconds-before-status-checks 5"
    if title == "TorchX":
        command = f"{command} && sleep 2; while squeue -h | grep -q .; do sleep 1; done"
    done = start(command)
    text = done.out if output is None else "".join(path.read_text() for path in sorted(folder.glob(output)))
    assert all(re.search(f"^{line}$", text, re.MULTILINE) for line in lines), f"{done}\n--- {output}\n{text}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_finds_the_ranks_itself(run, name):
    module, program = PROGRAMS[name]
    place = need(module)
    folder, start = run
    (folder / "train.py").write_text(program)
    command = section("Programs that find the ranks themselves")[0][1].strip()
    done = start(command if name != "mpi4py" else command.replace("--aml-dist=pytorch", "--mpi=pmix --aml-dist=mpi"), place)
    assert done.status == 0 and sorted(re.findall(r"^rank \d \d$", done.out, re.MULTILINE)) == [f"rank {rank} 4" for rank in range(4)], str(done)


def test_submitits_own_export_raises_unless_it_may_overwrite(run):
    need("submitit")
    folder, start = run
    example = section("submitit")[0][1]
    export = "    import submitit.helpers\n    submitit.helpers.TorchDistributedEnvironment().export({})\n    import torch"
    for arguments, words in [("", "already set"), ("overwrite=True, set_cuda_visible_devices=False", r"\(3, 4\)")]:
        (folder / "launch.py").write_text(example.replace("    import torch", export.format(arguments)))
        done = start("python launch.py")
        assert re.search(words, done.out + done.err), str(done)


def test_simple_slurm_does_not_know_the_option(run):
    need("simple_slurm")
    _, start = run
    done = start("python -c 'from simple_slurm import Slurm; Slurm(aml_dist=\"pytorch\")'")
    assert done.status != 0, str(done)


def test_a_helper_step_under_counts_is_told_what_to_do(run):
    _, start = run
    done = start("salloc -N2 -n4 --aml-dist=pytorch,process_count=4 bash -c 'srun -N1 -n1 hostname; srun -N1 -n1 --aml-dist=none hostname'")
    assert "--aml-dist=none" in done.err and "node1" in done.out, str(done)


DEEPSPEED = "deepspeed --launcher slurm --no_ssh_check --master_addr node1 --hostfile hosts '--launcher_args={}' {} train.py"


def test_deepspeeds_launcher_for_slurm(run):
    place = need("deepspeed")
    folder, start = run
    (folder / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    done = start(DEEPSPEED.format("--aml-dist=pytorch --ntasks-per-node=2", ""), place)
    assert done.status == 0 and sorted(re.findall(r"^rank .*", done.out, re.MULTILINE)) == RANKS, str(done)


def test_deepspeeds_launcher_for_slurm_names_hosts_and_gpus_if_it_is_asked(run):
    place = need("deepspeed")
    folder, start = run
    (folder / "hosts").write_text("node1 slots=2\nnode2 slots=2\nnode3 slots=2\n")
    done = start(DEEPSPEED.format("--aml-dist=pytorch", "--include node2:0@node3:0"), place)
    assert done.status == 0 and "--nodelist node2,node3" in done.out, str(done)
    assert sorted(re.findall(r"^rank .*", done.out, re.MULTILINE)) == ["rank 0 2 0 0", "rank 1 2 0 1"], str(done)
    done = start(DEEPSPEED.format("--aml-dist=pytorch", "--num_gpus 2"), place)  # this cluster has none
    assert done.status != 0 and "--gpus-per-node 2" in done.out and "generic resource" in done.err.lower(), str(done)


def test_composers_launcher_on_each_node_needs_its_flags(run):
    place = need("composer")
    folder, start = run
    (folder / "train.py").write_text(COMPOSER)
    step = "srun -N2 --ntasks-per-node=1 --cpus-per-task=2 --aml-dist=pytorch,launch=per-node"
    alone = start(f"{step} composer -n 2 train.py", place)
    assert alone.status != 0 and "composer" in alone.err, str(alone)
    flags = "--world_size 4 --base_rank $((NODE_RANK * 2)) --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
    together = start(f"{step} bash -c 'composer -n 2 {flags} --stdout out.{{rank}} train.py'", place)
    said = together.out + "".join(path.read_text() for path in sorted(folder.glob("out.*")))
    assert together.status == 0 and sorted(set(re.findall(r"^rank \d \d$", said, re.MULTILINE))) == [f"rank {rank} 4" for rank in range(4)], str(together) + said


def test_lightnings_requeue(cluster, run):
    """On SIGUSR1 it saves a checkpoint and puts the job back into the queue; the second run goes on from there."""
    need_framework("lightning")
    folder, start = run
    (folder / "train.py").write_text(LIGHTNING)
    (folder / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2 --time=10 --requeue --open-mode=append --output=out\n"
                                   "#SBATCH --signal=SIGUSR1@90\nsrun --aml-dist=pytorch python train.py\n")
    job = start("sbatch --parsable job.sh", VENV).out.strip()

    def wait_until(has_come, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        text = ""
        while time.monotonic() < deadline and not has_come(text):
            time.sleep(0.5)
            text = (folder / "out").read_text() if (folder / "out").exists() else ""
        return text

    wait_until(lambda text: len(re.findall(r"^rank \d begins at 0 restart 0$", text, re.MULTILINE)) == 4, 150)
    time.sleep(2)
    start(f"scancel --signal=USR1 {job}")
    text = wait_until(lambda text: text.count("trained") == 4, 200)
    begun = re.findall(r"^rank (\d) begins at (\d+) restart 1$", text, re.MULTILINE)
    assert sorted(rank for rank, _ in begun) == ["0", "1", "2", "3"] and all(int(step) > 0 for _, step in begun), text
    assert text.count("trained") == 4 and "first failure" not in text, text
