"""The scripts for administrators, over fabricated nodes: Slurm's HealthCheckProgram, NHC's check, the prolog."""

import os
import pathlib
import re
import shutil
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
        shutil.rmtree(tmp_path / "tree", ignore_errors=True)
        sys_folder, dev_folder = node.build(tmp_path / "tree")
        write(programs / "aml-dist", f'exec {conftest.TOOL} "$@" --sysfs-root {sys_folder} --dev-root {dev_folder}')
        write(programs / "scontrol", f'case $1 in show) printf "   State=%b ThreadsPerCore=1\\n" "{state}";; *) echo "$@" >>{tmp_path}/told;; esac')
        write(programs / "logger", f'echo "$@" >>{tmp_path}/log')
        return {"PATH": f"{programs}:{os.environ['PATH']}", "AML_DIST": str(programs / "aml-dist"),
                "AML_DIST_BASELINE": str(tmp_path / "counters"), "SLURMD_NODENAME": "node7", "AML_DIST_PAUSE": "0",
                "AML_DIST_HEALTH_CONF": "/nonexistent", "AML_DIST_PROLOG_CONF": str(tmp_path / "prolog.conf")}

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


def test_a_tool_that_is_missing_is_no_health_but_drains_nobody_unless_told_to(machine):
    env = machine(cases.base()) | {"AML_DIST": "/nonexistent/aml-dist"}
    assert run("aml-dist-health", env).returncode == 1 and machine.told() == "" and "could not run" in machine.log()
    assert run("aml-dist-health", env | {"AML_DIST_UNVERIFIED": "drain"}).returncode == 1
    assert "State=DRAIN" in machine.told()
    done = nhc(env)
    assert done.returncode == 1 and "could not run" in done.stdout


def test_a_mistyped_size_is_said_by_all_three(machine):
    env = machine(cases.base())
    wrong = env | {"AML_DIST_SKU": "no such size"}
    assert run("aml-dist-health", wrong).returncode == 1 and "no such size" in machine.log() and machine.told() == ""
    done = nhc(env, "no such size")
    assert done.returncode == 1 and "no such size" in done.stdout
    prolog_for(env, "no such size")
    assert run("prolog", env | {"SLURM_JOB_PARTITION": "gpu"}).returncode == 1


def test_a_tool_that_hangs_is_a_failure(machine):
    """A driver whose firmware does not answer holds up every reader of its files."""
    env = machine(cases.base()) | {"AML_DIST_TIMEOUT": "1", "AML_DIST_STRIKES": "2"}
    write(machine.programs / "aml-dist", "exec sleep 60")
    assert run("aml-dist-health", env).returncode == 1
    assert "State=DRAIN" in machine.told() and "did not end within 1 s" in machine.told()
    done = nhc(env)
    assert done.returncode == 1 and "did not end within 1 s" in done.stdout
    prolog_for(env, "HB120rs_v3")
    assert run("prolog", env | {"SLURM_JOB_PARTITION": "gpu"}).returncode == 1


def test_all_samples_fit_nhcs_watchdog_and_slurmds(machine):
    """NHC ends its checks after 30 s, slurmd its HealthCheckProgram after 60."""
    for script, most in (("aml-dist.nhc", 30), ("aml-dist-health", 60)):
        text = (HEALTH / script).read_text()
        strikes, pause, limit = (int(re.search(rf"AML_DIST_{name}:-([0-9]+)", text).group(1))
                                 for name in ("STRIKES", "PAUSE", "TIMEOUT"))
        assert strikes * (limit + 2) + (strikes - 1) * pause < most, script


def with_bad_samples(machine, bad: int) -> None:
    """The tool says that the node is sick so many times, and then what it sees."""
    tool = (machine.programs / "aml-dist").read_text().removeprefix("#!/bin/bash\n")
    count = machine.programs / "count"
    count.write_text("")
    write(machine.programs / "aml-dist", f"echo x >>{count}; if (($(wc -l <{count}) <= {bad})); then "
          f"echo 'node: fail (policy prefer)'; echo '  fail  ib.state      mlx5_ib1:1 1: DOWN'; exit 1; fi\n{tool}")


def test_one_bad_sample_does_not_drain(machine):
    env = machine(cases.base())
    with_bad_samples(machine, 1)
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == "" and "one bad sample" in machine.log()
    with_bad_samples(machine, 1)
    assert nhc(env).returncode == 0
    with_bad_samples(machine, 3)
    assert run("aml-dist-health", env).returncode == 1 and "State=DRAIN" in machine.told()


OURS = "IDLE+DRAIN ThreadsPerCore=1\n   Reason=aml-dist: ib.state mlx5_ib1:1 1: DOWN [root@2026-11-20T10:00:00]\n   X"


def test_what_heals_is_put_back_but_only_what_this_program_drained(machine):
    env = machine(cases.base(), OURS)
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == "update NodeName=node7 State=RESUME\n"
    env = machine(cases.base(), OURS.replace("aml-dist: ib.state", "replacing the fan"))
    (machine.programs.parent / "told").unlink()
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == ""
    env = machine(cases.base(), OURS) | {"AML_DIST_RESUME": "no"}
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == ""


def test_a_node_that_is_well_for_a_moment_stays_drained(machine):
    env = machine(sick(), OURS)
    tool = (machine.programs / "aml-dist").read_text().removeprefix("#!/bin/bash\n")
    mark = machine.programs / "seen"
    write(machine.programs / "aml-dist", f"[[ -e {mark} ]] || {{ touch {mark}; exit 0; }}\n{tool}")
    run("aml-dist-health", env)
    assert machine.told() == ""


def test_warnings_are_logged_once_until_they_change(machine):
    node = cases.base()
    node.devices[1].fw_ver = "28.37.1014"
    env = machine(node)
    for _ in range(3):
        assert run("aml-dist-health", env).returncode == 0
    assert machine.log().count("ib.fw") == 1 and machine.told() == ""


def test_nothing_to_verify_is_said(machine):
    env = machine(trees.Node([]))
    assert run("aml-dist-health", env).returncode == 0 and "nothing to verify" in machine.log()


def test_the_tool_is_found_where_path_does_not_lead(machine, tmp_path):
    """NHC's PATH has no /opt; an installation's own scripts find their own tool."""
    env = machine(sick())
    installed = tmp_path / "opt/aml-dist"
    scripts = installed / "share/doc/aml-dist/contrib/health"
    scripts.mkdir(parents=True)
    (installed / "bin").mkdir()
    (machine.programs / "aml-dist").rename(installed / "bin/aml-dist")
    (scripts / "aml-dist-health").write_bytes((HEALTH / "aml-dist-health").read_bytes())
    (scripts / "aml-dist-health").chmod(0o755)
    del env["AML_DIST"]
    done = subprocess.run([scripts / "aml-dist-health"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "ib.state" in machine.told(), done
    assert "/opt/aml-dist/bin/aml-dist" in (HEALTH / "aml-dist.nhc").read_text()


def reserving(machine, env: dict[str, str], reserved: bool) -> dict[str, str]:
    """Slurm's answer about the reservation is its exit status."""
    write(machine.programs / "scontrol", f'[[ $1 != show ]] || exit {0 if reserved else 1}; echo "$@" >>{machine.programs.parent}/told')
    return env | {"AML_DIST_DRAIN": "reserve"}


def test_a_sick_node_can_be_reserved_instead(machine):
    env = reserving(machine, machine(sick()), reserved=False)
    assert run("aml-dist-health", env).returncode == 1
    told = machine.told()
    assert told.startswith("create reservation ReservationName=aml-dist-node7 Nodes=node7 Users=root ") and "ib.state" in told
    assert run("aml-dist-health", reserving(machine, env, reserved=True)).returncode == 1 and machine.told() == told


def test_the_reservation_ends_when_the_node_is_well(machine):
    env = reserving(machine, machine(cases.base()), reserved=True)
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == "delete ReservationName=aml-dist-node7\n"
    (machine.programs.parent / "told").unlink()
    assert run("aml-dist-health", reserving(machine, env, reserved=False)).returncode == 0 and machine.told() == ""


def test_the_epilog_fails_on_sick_nodes_only(machine):
    env = machine(sick()) | {"AML_DIST_EPILOG_CONF": "/nonexistent"}
    done = run("epilog", env)
    assert done.returncode == 1 and "ib.state" in done.stderr
    assert run("epilog", env | {"AML_DIST": "/nonexistent/aml-dist"}).returncode == 0
    write(machine.programs / "aml-dist", "exec sleep 60")
    assert run("epilog", env | {"AML_DIST_TIMEOUT": "1"}).returncode == 1
    assert run("epilog", machine(cases.base()) | {"AML_DIST_EPILOG_CONF": "/nonexistent"}).returncode == 0


def prolog_for(env: dict[str, str], sku: str) -> None:
    pathlib.Path(env["AML_DIST_PROLOG_CONF"]).write_text(f"skus[gpu]='{sku}'\n")


def test_the_prolog_stops_jobs_on_sick_and_unverified_nodes(machine):
    env = machine(cases.base()) | {"SLURM_JOB_PARTITION": "gpu"}
    prolog_for(env, "ours")
    assert run("prolog", env).returncode == 1, "no such size"
    prolog_for(env, "HB120rs_v3")
    assert run("prolog", env).returncode == 0
    env = env | {"AML_DIST": "/nonexistent/aml-dist"}
    assert run("prolog", env).returncode == 1 and run("prolog", env | {"AML_DIST_UNVERIFIED": "pass"}).returncode == 0


def test_the_prolog_leaves_other_partitions_alone(machine):
    env = machine(sick()) | {"SLURM_JOB_PARTITION": "cpu"}
    assert run("prolog", env).returncode == 0


# --------------------------------------------------------------------------------------------------- a sick GPU acts, too

def with_gpus(machine, **fake) -> dict[str, str]:
    """Eight GPUs whose driver says what `fake` says."""
    library = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_nvml.so"
    return machine(trees.azure(8, cases.NDR, 8)) | {"AMLDIST_NVML": str(library)} | {f"FAKE_NVML_{name.upper()}": value for name, value in fake.items()}


def test_a_gpu_with_uncorrectable_errors_drains_and_comes_back(machine):
    env = with_gpus(machine, ecc="3:5")
    assert run("aml-dist-health", env).returncode == 1
    assert "State=DRAIN" in machine.told() and "gpu.ecc GPU 3" in machine.told(), machine.told()
    assert run("epilog", env).returncode == 1
    done = nhc(env)
    assert done.returncode == 1 and "gpu.ecc" in done.stdout, done
    well = with_gpus(machine)
    machine(trees.azure(8, cases.NDR, 8), "IDLE+DRAIN Reason=aml-dist: gpu.ecc GPU 3")
    assert run("aml-dist-health", well).returncode == 0 and "State=RESUME" in machine.told(), machine.told()


def test_a_site_may_only_want_to_be_told_of_sick_gpus(machine):
    env = with_gpus(machine, ecc="3:5") | {"AML_DIST_HEALTH": "prefer"}
    assert run("aml-dist-health", env).returncode == 0 and machine.told() == "" and "gpu.ecc" in machine.log()
    assert run("epilog", env).returncode == 0
    assert nhc(env, "-H", "prefer").returncode == 0


def test_the_alert_of_a_sick_node_fires_for_a_gpu(machine, tmp_path):
    """contrib/monitoring/alerts.yml: NodeIsSick is aml_dist_node_severity == 3."""
    env = with_gpus(machine, ecc="3:5") | {"AML_DIST_TEXTFILES": str(tmp_path), "AML_DIST_STEPS": "no", "AML_DIST_TEXTFILE_CONF": "/nonexistent"}
    script = HEALTH.parent / "monitoring/aml-dist-textfile"
    assert subprocess.run([script], env=env, capture_output=True, timeout=60).returncode == 0
    severity = [line for line in (tmp_path / "aml-dist-check.prom").read_text().splitlines() if line.startswith("aml_dist_node_severity")]
    assert len(severity) == 1 and severity[0].endswith(" 3"), severity
