"""Every example job on the real cluster through the real plugin, and what its output says, checked once more here."""

from __future__ import annotations

import dataclasses
import json
import re
import time

import pytest
from conftest import need, need_debian, results


@dataclasses.dataclass(frozen=True)
class Case:
    script: str
    nodes: int
    tasks: int  # on each node
    processes: int  # of the training, on all nodes
    needs: tuple[str, ...] = ("torch",)
    arguments: str = ""
    environment: str = ""  # which of its cluster environments the framework chose
    loss_falls: bool = True
    agree: bool = True
    env: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, [self.script, f"{self.nodes}x{self.tasks}", self.arguments]))


FSDP = Case("pytorch/train_fsdp.sbatch", 2, 2, 4)
CASES = [
    FSDP,
    dataclasses.replace(FSDP, nodes=3, tasks=1, processes=3),
    Case("lightning/lightning_per_process.sbatch", 2, 2, 4, ("lightning",), environment="SLURMEnvironment"),
    Case("lightning/lightning_per_node.sbatch", 2, 1, 4, ("lightning",), environment="LightningEnvironment"),
    Case("lightning/lightning_torchrun.sbatch", 2, 1, 4, ("lightning",), environment="TorchElasticEnvironment"),
    Case("lightning/lightning_mpi.sbatch", 2, 2, 4, ("lightning", "mpi4py"), environment="SLURMEnvironment"),
    Case("huggingface/trainer_per_node.sbatch", 2, 1, 4, ("transformers",)),
    Case("huggingface/accelerate_per_process.sbatch", 2, 2, 4, ("accelerate",), environment="MULTI_CPU"),
    Case("huggingface/accelerate_launch.sbatch", 2, 1, 4, ("accelerate",), environment="MULTI_CPU"),
    Case("deepspeed/deepspeed_per_process.sbatch", 2, 2, 4, ("deepspeed",), environment="ZeRO 1, gloo"),
    Case("deepspeed/deepspeed_per_process.sbatch", 2, 2, 4, ("deepspeed",), "--zero 3", environment="ZeRO 3, gloo"),
    Case("deepspeed/deepspeed_torchrun.sbatch", 2, 1, 4, ("deepspeed",), environment="ZeRO 1, gloo"),
    Case("deepspeed/deepspeed_mpi.sbatch", 2, 2, 4, ("deepspeed",), environment="ZeRO 1, gloo"),
    Case("deepspeed/deepspeed_azureml.sbatch", 2, 2, 4, ("deepspeed", "mpi4py"), environment="ZeRO 1, gloo"),
    Case("horovod/train_horovod.sbatch", 2, 2, 4, ("horovod",)),
    Case("tensorflow/train_multiworker.sbatch", 2, 1, 2, ("tensorflow-cpu",)),
    Case("tensorflow/train_multiworker.sbatch", 2, 2, 4, ("tensorflow-cpu",)),
    Case("tensorflow/train_keras.sbatch", 2, 1, 2, ("tensorflow-cpu", "tf-keras")),
    Case("tensorflow/train_parameter_server.sbatch", 2, 2, 4, ("tensorflow-cpu",), agree=False),
    Case("jax/train_jax.sbatch", 2, 2, 4, ("jax",)),
    Case("jax/train_jax.sbatch", 3, 1, 3, ("jax",)),
    Case("mpi/ranks_mpi4py.sbatch", 2, 2, 4, ("mpi4py",), loss_falls=False, agree=False),
    Case("mpi/ranks_mpi4py.sbatch", 4, 2, 8, ("mpi4py",), loss_falls=False, agree=False),
]


def check_result(result: dict, case: Case) -> list[str]:
    """Asserts the numbers, whatever the example itself made of them; returns what was checked."""
    assert result["good"] is True, result
    assert result["world_size"] == case.processes, result
    checked = [f"{case.processes} processes"]
    if case.loss_falls:
        assert 0 <= result["loss"][1] < result["loss"][0] / 2, result
        checked.append(f"loss {result['loss'][0]:.2g} → {result['loss'][1]:.1g}")
    if case.agree:
        assert len(result["weights"]) == case.processes and len(set(result["weights"])) == 1, result
        checked.append("all have the same weights")
    if "rank_sum" in result:
        assert result["rank_sum"] == case.processes * (case.processes - 1) // 2, result
        checked.append("sum over ranks")
    if "disagreements" in result:
        assert result["disagreements"] == 0, result
        checked.append("MPI's ranks are the environment's")
    if case.environment:
        assert result["environment"] == case.environment, result
        checked.append(case.environment)
    return checked


def run(examples, record, case: Case, debian: bool = False) -> tuple[dict, str]:
    began = time.monotonic()
    shape = f"--nodes={case.nodes} --ntasks-per-node={case.tasks}"
    state, output = examples.submit(case.script, shape, case.arguments, debian, dict(case.env))
    seconds = time.monotonic() - began
    found = results(output)
    assert state == "COMPLETED" and len(found) == 1, f"{state}\n{output}"
    checked = check_result(found[0], case)
    name = " ".join(filter(None, [case.script, case.arguments]))
    record(found[0]["framework"], found[0]["version"], f"`{name}`", f"{case.nodes} x {case.tasks}", f"{seconds:.0f}",
           ", ".join(checked), "good")
    return found[0], output


@pytest.mark.parametrize("case", CASES, ids=str)
def test_example(examples, record, case):
    need(*case.needs)
    run(examples, record, case)


@pytest.mark.core
@pytest.mark.parametrize("nodes, tasks", [(2, 2), (4, 2)])
def test_open_mpi_in_cpp(examples, record, nodes, tasks):
    run(examples, record, Case("mpi/ranks.sbatch", nodes, tasks, nodes * tasks, loss_falls=False, agree=False),
        debian=True)


def check_ddp(examples, record, script: str, nodes: int, tasks: int, processes: int, debian: bool) -> None:
    report_path = examples.folder / "report.json"
    began = time.monotonic()
    state, output = examples.submit(f"pytorch/{script}", f"--nodes={nodes} --ntasks-per-node={tasks}",
                                    f"--epochs 8 --report {report_path}", debian)
    seconds = time.monotonic() - began
    assert state == "COMPLETED", f"{state}\n{output}"
    report = json.loads(report_path.read_text())
    told = report["processes"]
    assert [each["rank"] for each in told] == list(range(processes))
    assert len({each["host"] for each in told}) == nodes
    assert report["largest_parameter_difference"] == 0
    assert report["epochs"][-1]["loss"] < report["epochs"][0]["loss"] / 2
    record("torch", report["torch"], f"`pytorch/{script}`", f"{nodes} x {tasks}", f"{seconds:.0f}",
           f"{processes} processes, loss {report['epochs'][0]['loss']:.2g} → {report['epochs'][-1]['loss']:.1g}, "
           "all have the same weights", "good")


DDP = [("train_ddp.sbatch", 2, 2, 4), ("train_launch.sbatch", 2, 1, 4), ("train_torchrun.sbatch", 2, 1, 4)]


@pytest.mark.core
@pytest.mark.parametrize("script, nodes, tasks, processes", DDP)
def test_data_parallel_on_debians_pytorch(examples, record, script, nodes, tasks, processes):
    need_debian("torch", "python3-torch")
    check_ddp(examples, record, script, nodes, tasks, processes, debian=True)


@pytest.mark.parametrize("script, nodes, tasks, processes", DDP)
def test_data_parallel_on_new_pytorch(examples, record, script, nodes, tasks, processes):
    need("torch")
    check_ddp(examples, record, script, nodes, tasks, processes, debian=False)


@pytest.mark.parametrize("way, command", [
    ("salloc, srun --job-name=train", "salloc -N2 --ntasks-per-node=2 srun --job-name=train --aml-dist=pytorch"),
    ("srun without --ntasks-per-node", "srun -N2 -n4 --exclusive --aml-dist=pytorch"),
    ("a host file", "env SLURM_HOSTFILE=hosts srun -n4 --distribution=arbitrary --aml-dist=pytorch"),
])
def test_lightning_without_a_batch_script(examples, record, way, command):
    need("lightning")
    folder = examples.folder / "lightning"
    (folder / "hosts").write_text("node3\nnode3\nnode1\nnode1\n")
    began = time.monotonic()
    done = examples.cluster.run(f"cd {folder} && {command} python3 train_lightning.py", env=examples.environment())
    assert done.status == 0, str(done)
    case = Case("lightning/train_lightning.py", 2, 2, 4, environment="SLURMEnvironment")
    result, = results(done.out)
    checked = check_result(result, case)
    record("lightning", result["version"], f"`{case.script}`, {way}", "2 x 2", f"{time.monotonic() - began:.0f}",
           ", ".join(checked), "good")


def test_trainer_takes_local_rank_from_the_variable(examples, record):
    """The argument --local_rank=N is parsed and ignored by version 5; each process must still know its number."""
    need("transformers")
    result, _ = run(examples, record, Case("huggingface/trainer_per_process.sbatch", 2, 2, 4, ("transformers",)))
    assert result["local_ranks"] == [0, 1, 0, 1]


@pytest.mark.core
def test_a_requeued_training_goes_on_from_its_checkpoint(examples, record):
    need_debian("torch", "python3-torch")
    case = Case("several/resume.sbatch", 2, 2, 4, agree=True)
    result, output = run(examples, record, case, debian=True)
    assert result["started"] == [1, 4] and result["epochs"] == 6
    assert re.search(r"^aml-dist: first failure: rank 0 \(local 0\) on node\d+: signal 9", output, re.MULTILINE), output
    assert "done after 1 restarts" in output


@pytest.mark.core
def test_an_array_of_trainings(examples, record):
    need_debian("torch", "python3-torch")
    began = time.monotonic()
    state, output = examples.submit("several/array.sbatch", "", "--epochs 6 --fall 1.5", debian=True)
    assert state == "COMPLETED", f"{state}\n{output}"
    reports = [json.loads((examples.folder / f"several/array-{index}.json").read_text()) for index in (1, 2, 3)]
    assert all(report["world_size"] == 2 and report["parameters_equal"] for report in reports)
    assert len({report["processes"][0]["master_port"] for report in reports}) == 3
    assert len({report["epochs"][-1]["loss"] for report in reports}) == 3, "each has its own learning rate"
    record("torch", reports[0]["torch"], "`several/array.sbatch`, three at once", "2 x 1",
           f"{time.monotonic() - began:.0f}",
           "2 processes each, three ports, loss falls, same weights", "good")


def test_two_frameworks_as_concurrent_steps_of_one_job(examples, record):
    need("torch", "jax")
    began = time.monotonic()
    state, output = examples.submit("several/two_steps.sbatch")
    assert state == "COMPLETED", f"{state}\n{output}"
    jax, = results(output)
    assert jax["world_size"] == 4 and jax["rank_sum"] == 6 and jax["good"] is True
    assert re.search(r"largest difference between the processes' parameters: 0$", output, re.MULTILINE), output
    record("torch and jax", jax["version"], "`several/two_steps.sbatch`", "2 x 2 twice",
           f"{time.monotonic() - began:.0f}",
           "4 processes each, both train", "good")
