"""Every command in the documents is run: here as it stands, on a cluster whose nodes claim eight GPUs, with stand-ins for the
user's programs; or by the test or the script that is named below. A command that is new in a document is run here.

Other tests check that the right tasks run; here each command must do what its document says: end with that status, print
the lines that the document shows, and start as many programs as it says.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import tempfile

import pytest
from cluster import READABLE, ROOT, Cluster
from conftest import NAME, PLUGIN, RELEASE
from documents import Command, commands

# Where a command is run that needs a machine, a framework, hardware or a build of its own: FILE, or FILE::FUNCTION.
ELSEWHERE = [
    (r"contrib/demo/run|tests/run", "contrib/demo/run"),  # checks its own outcome
    (r"contrib/setup/install-packages .*", "tests/run"),
    (r"(cmake|ctest) --(build --)?preset.*", "tests/run"),
    (r"cmake (-S . -B|--build|--install) build.*", "tests/package/test_install.py::prefix"),
    (r"cc who\.c .*|.*\./who", "tests/package/test_install.py::test_the_manuals_example_compiles_and_runs"),
    (r"contrib/packaging/build-deb .*", "tests/package/test_debian_packages.py::packages"),
    (r"/usr/share/aml-dist/devcluster/devcluster .*", "tests/installation/test_installation.py::test_a_first_job_runs"),
    (r"apt-get (update|install .*)", "tests/installation/test_installation.py::test_installing_makes_it_active"),
    (r"(install -m|mv /opt).*", "tests/cluster/faults/test_faults.py::test_the_plugins_file_is_replaced_while_a_step_runs"),
    (r"contrib/devcluster/devcluster .*", "contrib/devcluster/selftest"),
    (r"tests/soak/fuzz", "tests/fuzz/run"),  # for hours, the same targets
    (r"sbatch .*(train|trainer|deepspeed|accelerate|ranks|two_steps|array|resume)\w*\.sbatch.*", "tests/frameworks/test_examples.py"),
    (r"cp -r contrib/examples .*|cat train_ddp-\*\.out", "tests/frameworks/test_examples.py::check_ddp"),
    (r"PROCESSES=4 sbatch train_launch.sbatch", "tests/frameworks/test_examples.py::DDP"),
    (r"srun --job-name=train .* train_lightning.py", "tests/frameworks/test_examples.py::test_lightning_without_a_batch_script"),
    (r"python launch.py -m .*|SLURM_AML_DIST=.* torchx .*|srun .* --mpi=pmix --aml-dist=mpi python train.py|snakemake .*|srun .*symmetric-run.*"
     r"|srun -N2 --ntasks-per-node=2 --aml-dist=pytorch python train.py", "tests/frameworks/test_clients.py::test_the_example_of_the_page"),
    (r"srun .* aml-dist ray .*", "tests/frameworks/test_ray.py::test_a_driver_on_all_nodes"),
    (r"(#!/bin/bash\n)?(#SBATCH [^\n]*\n)*aml-dist keep .*", "tests/cluster/keep/test_trials.py::test_a_fault_by_the_seed"),
    (r"aml-dist stop 1234|until \[ -e .*",
     "tests/cluster/faults/test_stop.py::test_aml_dist_stop_reaches_a_program_without_the_library_on_all_nodes_at_once"),
    (r"aml-dist order >hosts\n.*", "tests/cluster/site/test_topology.py::test_the_host_file_brings_them_into_order_and_ranks_stay_slurms"),
    (r"srun .* train_ddp.py", "tests/cluster/programs/test_training.py"),
    (r"aml-run pytorch.yml .*", "tests/cluster/programs/test_aml_run.py::test_pytorch_job_file_trains"),
    (r"aml-run (pipeline.yml .*|--(show|resume) train-1.*)",
     "tests/cluster/programs/test_runs.py::test_a_pipeline_of_twelve_jobs_fails_in_the_middle_and_is_resumed"),
    (r"aml-run --cancel train-1", "tests/cluster/programs/test_runs.py::test_a_pipeline_is_cancelled_as_one"),
    (r"aml-run (sweep.yml .*|--show tune-1 .*)", "tests/cluster/programs/test_runs.py::test_a_sweep_of_fifty_trials_with_four_at_a_time"),
    (r"aml-run --resume tune-1", "tests/cluster/programs/test_runs.py::test_an_interrupted_sweep_goes_on"),
    (r"pip wheel .*", "tests/frameworks/test_wheel.py::wheel"),
    (r"pip install .*|python -m amldist", "tests/frameworks/test_wheel.py::test_two_processes_all_reduce_in_every_python_that_is_here"),
    (r"aml-torchrun .*train_ddp.py.*", "tests/cluster/programs/test_aml_run.py::test_torchrun_trains_with_a_task_for_each_process"),
    (r"aml-mpirun .* mpi/pi .*", "tests/cluster/programs/test_aml_run.py::test_mpirun_starts_real_mpi_and_several_programs"),
    (r".*aml-dist check.*", "tests/cluster/fabric/test_fabric.py::test_a_step_of_healthy_nodes_is_verified_with_writes_between_them"),
    (r"srun .*rdma=require.*", "tests/cluster/fabric/test_fabric.py::test_require_with_one_sick_node_ends_the_step_before_a_program_starts"),
    (r"srun .*hang=60 .*|echo \$\?", "tests/cluster/trace/test_hang.py::test_the_right_rank_is_named_and_the_step_ended"),
    (r".*aml-dist trace 1234", "tests/cluster/trace/test_trace.py::test_trace_tells_who_is_stopped_in_a_running_step_and_of_a_dead_one"),
    (r"aml-dist bench .*--peer openmpi.*", "tests/tools/test_bench.py::test_open_mpi_is_measured_in_the_same_run"),
    (r"srun .* aml-dist bench --scaling", "tests/tools/test_bench.py::test_scaling_has_a_row_for_each_part_of_the_step"),
]
# What ends otherwise than with 0 because its document says so.
REFUSED = {"srun -N2 -n4 --aml-dist=pytorch,process_count=8 python train.py": 1}
# What the doctor finds depends on what is installed here: 0, or 1 where something would fail. tests/frameworks compares it
# with the frameworks themselves, tests/tools with its own rules.
EXAMINED = re.compile(r"aml-dist doctor\b")
STARTS = {"-N2 --ntasks-per-node=4": 8, "-N3 -n3": 3, "-N2 --ntasks-per-node=2": 4, "--nnodes=2 --nproc-per-node=4": 8,
          "-n 8 --map-by": 8, "-n 1 ./master : -n 7 ./worker": 8, "-np 16": 16, "-np 8": 8, "-N2 --ntasks-per-node=1": 2,
          "#SBATCH --ntasks-per-node=4": 8, "-N2 -n8 -D src": 8, "aml-run job.yml --wait": 4, "-N1 -n1": 1}
STAND_IN = '#!/bin/sh\nprintf "stand-in: %s\\n" "$0 $*"\n'
JOB = """command: python train.py --epochs 10
distribution: {type: pytorch, process_count_per_instance: 2}
resources: {instance_count: 2}
"""


def place_of(command: Command) -> str | None:
    return next((place for pattern, place in ELSEWHERE if re.fullmatch(pattern, command.text, re.DOTALL)), None)


HERE = [each for each in commands() if place_of(each) is None]


@pytest.fixture(scope="module")
def gpu_cluster(cluster):
    """Depends on `cluster` so that the suite's name can be shortened."""
    own = Cluster(f"{NAME[:13]}-d", 4)
    started = own.devcluster("start", "--nodes", "4", "--gres", "gpu:8", "--restart", "--plugin", PLUGIN, "--conf",
                             "PartitionName=gpu Nodes=ALL OverSubscribe=YES", *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield own
    assert own.devcluster("stop").status == 0


@pytest.fixture(scope="module")
def desk():
    """A user's folder with everything that the documents assume."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-documents-", dir="/var/tmp"))
    for name in ("bin/python", "bin/torchrun", "bin/deepspeed", "train", "solver", "master", "worker", "prepare-data"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    for name, text in {"train.py": "", "src/train.py": "", "ds.json": "{}", "job.yml": JOB}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for path in (folder, folder / "src"):
        path.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def line_for(command: Command, desk: pathlib.Path) -> str:
    """What is given to the shell: the command, or for a batch script its submission."""
    text = command.text
    if command.is_script:
        (desk / "job.sbatch").write_text(text + "\n")
        text = ("rm -f job.out; sbatch --quiet --output=job.out job.sbatch && "
                "while squeue -h --me | grep -q .; do sleep 0.2; done; cat job.out")
    return f"cd {desk} && export PATH={desk}/bin:{READABLE}:$PATH && {text}"


def alike(line: str) -> str:
    """Addresses and ports differ between clusters, and columns with them."""
    return " ".join(re.sub(r"\d+\.\d+\.\d+\.\d+", "ADDRESS", line).split())


@pytest.mark.parametrize("command", HERE, ids=str)
def test_it_does_what_its_document_says(request, gpu_cluster, desk, command):
    launches_mpi = command.text.startswith(("aml-mpirun", "aml-horovodrun")) and "dry-run" not in command.text
    if launches_mpi or "--mpi=pmix" in command.text:
        request.getfixturevalue("pmix")
    if "jq " in command.text and gpu_cluster.run("command -v jq").status != 0:
        pytest.skip("jq is not installed")
    done = gpu_cluster.run(line_for(command, desk), user="alice", timeout=60)
    if EXAMINED.search(command.text):
        assert done.status in (0, 1) and done.out.startswith("FRAMEWORK"), str(done)
        return
    wanted = REFUSED.get(command.text, 0)
    assert done.status == wanted, str(done)
    said = [alike(line) for line in (done.out + done.err).splitlines()]
    assert [line for line in map(alike, command.shown) if line not in said] == [], str(done)
    for words, programs in STARTS.items():
        if words in command.text and wanted == 0 and "dry-run" not in command.text:
            assert done.out.count("stand-in: ") == programs, str(done)


@pytest.mark.parametrize("pattern, place", ELSEWHERE)
def test_it_is_run_where_this_file_says(pattern, place):
    file, _, function = place.partition("::")
    assert (ROOT / file).is_file(), place
    text = (ROOT / file).read_text()
    assert not function or re.search(rf"^(def {function}\(|{function} = )", text, re.MULTILINE), place
    meant = [each for each in commands() if re.fullmatch(pattern, each.text, re.DOTALL)]
    assert meant, "no document has such a command any more"
    if file.endswith("test_examples.py"):
        for script in (name for each in meant for name in re.findall(r"\w+\.sbatch", each.text)):
            assert script in text, f"{script} is not run in {file}"
