"""The scripts for administrators, over fabricated nodes: Slurm's HealthCheckProgram, NHC's check, the prolog."""

import os
import pathlib
import subprocess

import cases
import conftest
import pytest
import trees

HEALTH = pathlib.Path(__file__).resolve().parents[2] / "contrib/health"
# What NHC gives its checks, as far as ours needs it.
NHC = 'die() { local status=$1; shift; echo "ERROR: $*"; return "$status"; }; . "$1"; shift; check_aml_dist "$@"'


@pytest.fixture
def machine(tmp_path):
    """A folder with an aml-dist that sees a fabricated node, an scontrol that writes down what it is told, a logger."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def become(node: trees.Node, state: str = "IDLE") -> dict[str, str]:
        sys_folder, dev_folder = node.build(tmp_path / "tree")
        write(programs / "aml-dist", f'exec {conftest.TOOL} "$@" --sysfs-root {sys_folder} --dev-root {dev_folder}')
        write(programs / "scontrol", f'case $1 in show) echo "   State={state} ThreadsPerCore=1";; *) echo "$@" >>{tmp_path}/told;; esac')
        write(programs / "logger", f'echo "$@" >>{tmp_path}/log')
        return {"PATH": f"{programs}:{os.environ['PATH']}", "AML_DIST": str(programs / "aml-dist"),
                "AML_DIST_BASELINE": str(tmp_path / "counters"), "SLURMD_NODENAME": "node7"}

    become.told = lambda: (tmp_path / "told").read_text() if (tmp_path / "told").exists() else ""
    become.log = lambda: (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    become.programs = programs
    return become


def write(path: pathlib.Path, script: str) -> None:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def run(script: str, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([HEALTH / script, *arguments], env=env, capture_output=True, text=True, timeout=60)


def nhc(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-c", NHC, "-", HEALTH / "aml-dist.nhc", *arguments], env=env, capture_output=True,
                          text=True, timeout=60)


def sick() -> trees.Node:
    node = cases.base()
    node.port(1).state, node.port(1).phys_state = "1: DOWN", "2: Polling"
    return node


def test_a_healthy_node_is_left_alone(machine):
    env = machine(cases.base())
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == ""
    assert nhc(env).returncode == 0


def test_a_sick_node_is_drained_with_the_reason(machine):
    env = machine(sick())
    assert run("aml-dist-health", env).returncode == 1
    told = machine.told()
    assert "NodeName=node7 State=DRAIN" in told and "ib.state" in told and "mlx5_ib1:1" in told, told
    done = nhc(env)
    assert done.returncode == 1 and "check_aml_dist: ib.state" in done.stdout, done


def test_a_node_that_is_drained_already_keeps_its_reason(machine):
    env = machine(sick(), "IDLE+DRAIN")
    assert run("aml-dist-health", env).returncode == 1 and machine.told() == ""


def test_draining_can_be_switched_off(machine):
    env = machine(sick()) | {"AML_DIST_DRAIN": "no"}
    assert run("aml-dist-health", env).returncode == 1 and machine.told() == "" and "ib.state" in machine.log()


def test_what_should_be_there_is_expected(machine):
    env = machine(cases.base())
    assert run("aml-dist-health", env | {"AML_DIST_SKU": "Standard_ND96isr_H100_v5"}).returncode == 1
    assert nhc(env, "Standard_ND96isr_H100_v5").returncode == 1
    assert nhc(env, "-p", "require").returncode == 0


def test_a_node_without_devices_is_healthy_unless_something_is_required(machine):
    env = machine(trees.Node([]))
    assert run("aml-dist-health", env).returncode == 0 and nhc(env).returncode == 0
    assert nhc(env, "-p", "require").returncode == 1


def test_a_tool_that_does_not_work_drains_nobody(machine):
    env = machine(cases.base()) | {"AML_DIST": "/nonexistent/aml-dist"}
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == "" and "could not run" in machine.log()


def test_the_prolog_leaves_other_partitions_alone(machine):
    env = machine(sick()) | {"SLURM_JOB_PARTITION": "cpu"}
    assert run("prolog", env).returncode == 0
