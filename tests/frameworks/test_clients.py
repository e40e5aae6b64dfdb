"""The examples of docs/clients.md, each with the real client on the real cluster: `tests/frameworks/install --clients`."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile

import pytest
from conftest import DEBIAN, FOLDER, ROOT

CLIENTS = pathlib.Path(os.environ.get("AMLDIST_CLIENTS", FOLDER / "clients")) / "venv"
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
PROGRAMS = {  # of the page's table; the others are in frameworks.md, or were read, not run
    "Fabric": ("lightning_fabric", "from lightning_fabric import Fabric\nfabric = Fabric(accelerator='cpu', devices=2, num_nodes=2, strategy='ddp')\n"
               "fabric.launch()\nprint('rank', fabric.global_rank, fabric.world_size)\n"),
    "accelerate": ("accelerate", "from accelerate import Accelerator\na = Accelerator(cpu=True)\nprint('rank', a.process_index, a.num_processes)\n"),
    "Ignite": ("ignite", "import ignite.distributed as idist\nwith idist.Parallel(backend='gloo') as p:\n"
               "    p.run(lambda _: print('rank', idist.get_rank(), idist.get_world_size(), flush=True))\n"),
    "MMEngine --launcher pytorch": ("mmengine", MMENGINE.format("pytorch")),
    "MMEngine --launcher slurm": ("mmengine", MMENGINE.format("slurm")),
    "mpi4py": ("mpi4py", "from mpi4py import MPI\nprint('rank', MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, flush=True)\n"),
}


def need(module: str) -> None:
    if not list(CLIENTS.glob(f"lib/python3.*/site-packages/{module.replace('.', '/')}")):
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
    variables = {"PATH": f"{CLIENTS}/bin:{DEBIAN}", "HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    def start(command: str):
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
    need(module)
    folder, start = run
    (folder / "train.py").write_text(program)
    command = section("Programs that find the ranks themselves")[0][1].strip()
    done = start(command if name != "mpi4py" else command.replace("--aml-dist=pytorch", "--mpi=pmix --aml-dist=mpi"))
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
