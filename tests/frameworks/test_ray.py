"""`aml-dist ray` with the real Ray on the real cluster: `tests/frameworks/install --rays` installs a new one, and one from before tokens
and `ray symmetric-run`."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import threading
import time

import pytest
from conftest import DEBIAN, FOLDER, ROOT, readable_copy

RAYS = pathlib.Path(os.environ.get("AMLDIST_RAYS", FOLDER))  # RAYS/ray-new, RAYS/ray-old
SLOW = 400  # seconds: each Ray starts ten Pythons, and the nodes share two cores
SHAPE = "-N2 --ntasks-per-node=1 --cpus-per-task=2"
HELLO = """import ray
ray.init(log_to_driver=False)
nodes = ray.get([ray.remote(num_cpus=0)(lambda: __import__("socket").gethostname()).options(resources={"node:" + n["NodeManagerAddress"]: 0.01})
                 .remote() for n in ray.nodes()])
print("driver:", sorted(nodes), ray.cluster_resources().get("CPU"), flush=True)
"""


@pytest.fixture(params=["new", "old"])
def ray(request):
    return installed(request.param)


def installed(which: str) -> pathlib.Path:
    folder = RAYS / f"ray-{which}/bin"
    if not (folder / "ray").is_file():
        pytest.skip(f"{folder}/ray is not installed: run tests/frameworks/install --rays")
    return folder


@pytest.fixture
def new():
    return installed("new")


class Steps:
    """Starts steps of `aml-dist ray`, and looks for what they leave."""

    def __init__(self, cluster, tool, folder: pathlib.Path) -> None:
        self.cluster, self.tool, self.folder = cluster, tool, folder

    def driver(self, text: str, name: str = "driver.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return f"python {path}"

    def line(self, command: str, shape: str = SHAPE, options: str = "", option: str = "ray") -> str:
        return f"srun {shape} --aml-dist={option} {self.tool} ray {options} -- {command}"

    def run(self, bin_folder: pathlib.Path, command: str, shape: str = SHAPE, options: str = "", option: str = "ray", user: str = "root",
            timeout: float = SLOW):
        line = self.line(command, shape, options, option)
        return self.cluster.run(line, user=user, env={"PATH": f"{bin_folder}:{DEBIAN}"}, timeout=timeout)

    def left(self) -> dict[str, str]:
        """Processes of Ray, folders and leases on each node."""
        look = ("ls -d /tmp/aml-ray-* 2>/dev/null; ls /run/aml-dist/ports 2>/dev/null | grep \"[.]$(stat -Lc %i /proc/self/ns/net)$\";"
                " for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done |"
                " grep -E 'ray::|raylet|gcs_server|ray start|aml-dist ray' | grep -v grep; true")
        names = [f"node{number}" for number in range(1, self.cluster.nodes + 1)]
        return {name: out for name in names if (out := self.cluster.run(look, on=name).out.strip())}

    def wait_until_clean(self, seconds: float = 60) -> dict[str, str]:
        """The step's last processes may live a moment longer than srun."""
        deadline = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < deadline:
            time.sleep(1)
        return found


@pytest.fixture
def steps(cluster, tool, tmp_path_factory):
    folder = pathlib.Path(f"/var/tmp/aml-dist-ray-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    steps = Steps(cluster, tool, folder)
    yield steps
    assert steps.wait_until_clean() == {}


def own(done) -> list[str]:
    return [line.removeprefix("aml-dist: ray: ") for line in done.err.splitlines() if line.startswith("aml-dist: ray: ")]


def test_a_driver_on_all_nodes(steps, ray):
    done = steps.run(ray, steps.driver(HELLO), "-N4 --ntasks-per-node=1 --cpus-per-task=1")
    assert done.status == 0, str(done)
    assert "driver: ['node1', 'node2', 'node3', 'node4'] 4.0" in done.out, str(done)
    said = own(done)
    assert re.match(r"Ray 2\.\d+\.\d+ with Python 3\.11\.\d+ on 4 nodes at 10\.\S+: 4 CPUs, 0 GPUs, ", said[0]), str(done)
    assert ("no token keeps others out" in done.err) == ("ray-old" in str(ray)), str(done)
    assert "the step has one CPU on each node: use srun --cpus-per-task=N for more" in done.err, str(done)


@pytest.mark.parametrize("end, status, words", [
    ("raise SystemExit(7)", 7, "exit status 7"),
    ("import os; os.kill(os.getpid(), 9)", 137, "signal 9 (SIGKILL)"),
])
def test_the_drivers_end_is_the_steps(steps, new, end, status, words):
    done = steps.run(new, steps.driver(end), SHAPE)
    assert done.status == status, str(done)
    assert f"first failure: rank 0 (local 0) on node1: {words}" in done.err, str(done)


def test_what_a_driver_leaves_running_is_ended(steps, new):
    done = steps.run(new, "bash -c 'setsid sleep 1000 & exit 0'", SHAPE)
    assert done.status == 0, str(done)


def test_a_node_without_ray_is_named(steps, new):
    command = f"bash -c '[[ $SLURM_NODEID == 0 ]] || PATH={DEBIAN}; exec {steps.tool} ray -- true'"
    done = steps.cluster.run(f"srun {SHAPE} --aml-dist=ray {command}", env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    assert done.status == 1 and "node2: there is no program 'ray' in PATH" in done.err, str(done)
    assert "first failure: rank 1 (local 0) on node2: exit status 1" in done.err or "rank 0" in done.err, str(done)


def test_two_versions_are_named(steps, new):
    old = installed("old")
    command = f"bash -c '[[ $SLURM_NODEID == 0 ]] || PATH={old}:{DEBIAN}; exec {steps.tool} ray -- true'"
    done = steps.cluster.run(f"srun {SHAPE} --aml-dist=ray {command}", env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    assert done.status != 0, str(done)
    assert re.search(r"ray: node2 has Ray 2\.4\d\.\d+ with Python \S+ but the head, node1, has Ray 2\.", done.err), str(done)


def test_a_node_that_does_not_come_is_named(steps, new):
    command = f"bash -c '[[ $SLURM_NODEID == 0 ]] || exec sleep 60; exec {steps.tool} ray --wait=40 -- true'"
    done = steps.cluster.run(f"srun {SHAPE} --kill-on-bad-exit=1 --aml-dist=ray {command}", env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    assert done.status != 0 and re.search(r"ray: (no word from node2|node1: Ray does not come up)", done.err), str(done)


@pytest.mark.parametrize("arguments, option, words", [
    ("--head-args=--port=6379", "ray", "use --aml-dist=ray,master_port=N"),
    ("--worker-args='--num-cpus 1 --block'", "ray", "it is always there"),
    ("--head-args=\"'\"", "ray", "ray: "),
    ("--dashboard=x", "ray", "is not a number"),
    ("--temp-dir=/var/tmp/a-folder-whose-name-is-long", "ray", "is too long for Ray's sockets"),
    ("--temp-dir=/nowhere", "ray", "cannot be made: No such file or directory"),
    ("", "pytorch", "this is no step of kind ray"),
])
def test_bad_input_is_refused(steps, new, arguments, option, words):
    done = steps.run(new, "true", "-N1 -n1", arguments, option)
    assert done.status in (1, 2) and words in done.err, str(done)


def test_two_tasks_on_a_node_are_refused_before_the_start(steps, new):
    done = steps.run(new, "true", "-N2 --ntasks-per-node=2")
    assert done.status != 0 and "use srun --ntasks-per-node=1" in done.err, str(done)


FAULTS = {  # where, what is killed, how the sentence begins
    "raylet of a worker": ("node2", "raylet/raylet", r"ray: node2: raylet ended with signal 9"),
    "raylet of the head": ("node1", "raylet/raylet", r"ray: node1: raylet ended with signal 9"),
    "GCS": ("node1", "gcs/gcs_server", r"ray: node1: .*gcs_server ended with signal 9"),
    "raylet of a worker, stopped": ("node2", "raylet/raylet", r"ray: node2: raylet .* is stopped \(SIGSTOP\) for|ray: node2: raylet ended"),
    "ray start of a worker": ("node2", "bin/ray start", r"node2: .*signal 9"),
    "aml-dist of a worker": ("node2", "bin/aml-dist ray|aml-dist.* ray ", r"node2: its aml-dist ray has ended"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_death_ends_the_step_and_is_named(steps, new, fault):
    where, pattern, sentence = FAULTS[fault]
    driver = steps.driver("import ray, time\nray.init()\nprint('up', flush=True)\ntime.sleep(600)\n")
    result = {}
    thread = threading.Thread(target=lambda: result.update(done=steps.run(new, f"bash -c '{driver} >{steps.folder}/up'")))
    (steps.folder / "up").unlink(missing_ok=True)
    thread.start()
    deadline = time.monotonic() + SLOW
    while not ((steps.folder / "up").exists() and (steps.folder / "up").read_text()) and time.monotonic() < deadline and thread.is_alive():
        time.sleep(1)
    start = time.monotonic()
    killed = steps.cluster.run(f"pkill -{'STOP' if 'stopped' in fault else 'KILL'} -o -f {shlex.quote(pattern)}", on=where)
    assert killed.status == 0, str(killed)
    thread.join(120)
    assert not thread.is_alive() and time.monotonic() - start < 100
    assert result["done"].status != 0 and re.search(sentence, result["done"].err), str(result["done"])


@pytest.mark.parametrize("fault, status, words", [
    ("full-tmp", 1, r"ray: node2: /tmp has 0 MiB free"),
    ("small-shm", 0, r"ray: node2: /dev/shm has 16 MiB free, Ray needs at least 80 MiB"),
])
def test_a_node_without_room(steps, new, cluster, fault, status, words):
    small = "mount -o remount,size={} /dev/shm"
    broken = cluster.run(small.format("16M"), on="node2") if fault == "small-shm" else cluster.devcluster("break", "node2", fault)
    assert broken.status == 0, str(broken)
    try:
        done = steps.run(new, steps.driver(HELLO))
        assert done.status == status and re.search(words, done.err), str(done)
    finally:
        cluster.run(small.format("50%"), on="node2")
        cluster.devcluster("heal", "node2")


def test_many_starts_and_stops_leave_nothing(steps, new):
    """AMLDIST_SOAK_RAYS=100 before a release."""
    for number in range(int(os.environ.get("AMLDIST_SOAK_RAYS", "2"))):
        done = steps.run(new, f"bash -c 'exit {number % 2}'", "-N1 -n1 -c2")
        assert done.status == number % 2 and steps.wait_until_clean() == {}, str(done)


def test_tune_runs_its_trials(steps, new):
    done = steps.run(new, f"python {ROOT}/contrib/examples/ray/src/driver.py --tune 16 --points 4000")
    assert done.status == 0 and '"best": 3.0' in done.out, str(done)


def test_scancel_gives_the_driver_time(steps, new):
    driver = steps.driver("import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: (print('saved', flush=True), sys.exit(0)))\n"
                          "print('up', flush=True)\ntime.sleep(600)\n")
    out = steps.folder / "job.out"
    out.unlink(missing_ok=True)
    (steps.folder / "job.sh").write_text(f"#!/bin/bash\n{steps.line(driver)}\n")
    job = steps.cluster.run(f"sbatch --parsable -N2 --ntasks-per-node=1 -c2 -o {out} {steps.folder}/job.sh", env={"PATH": f"{new}:{DEBIAN}"}).out.strip()
    deadline = time.monotonic() + SLOW
    while not (out.exists() and "up" in out.read_text()) and time.monotonic() < deadline:
        time.sleep(1)
    assert steps.cluster.run(f"scancel -s TERM {job}").status == 0
    deadline = time.monotonic() + 60
    while "saved" not in out.read_text() and time.monotonic() < deadline:
        time.sleep(1)
    assert "saved" in out.read_text()


def test_two_users_and_two_steps_share_a_node(steps, new):
    """At once on the same two nodes; each sees its own cluster only."""
    driver = steps.driver(HELLO)
    results = {}
    threads = [threading.Thread(target=lambda user=user, number=number: results.update(
        {number: steps.run(new, driver, "-w node[1-2] --overcommit -N2 --ntasks-per-node=1 -c1", user=user)})) for number, user in enumerate(["alice", "bob", "alice"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for done in results.values():
        assert done.status == 0 and "driver: ['node1', 'node2'] 2.0" in done.out, str(done)


def test_strangers_do_not_get_in(steps, new):
    """Another user's driver on the same node has the address but not the token."""
    stranger = "import ray\ntry:\n    ray.init(address='ADDRESS')\n    print('in')\nexcept BaseException as e:\n    print('out', type(e).__name__)\n"
    path = steps.folder / "stranger.py"
    path.write_text(stranger)
    command = f"bash -c 'sed -i s/ADDRESS/$RAY_ADDRESS/ {path}; env -u RAY_AUTH_TOKEN -u RAY_AUTH_MODE -u RAY_ADDRESS HOME=/tmp timeout 120 python {path}'"
    done = steps.run(new, command, "-N1 -n1 -c1")
    assert "in" not in done.out.split(), str(done)


def test_sizes_are_the_steps(steps, new):
    """The development cluster limits no memory: commands_tests have cases for that."""
    driver = steps.driver("import ray\nray.init()\nr = ray.cluster_resources()\nprint('sizes', r['CPU'], r.get('GPU', 0))\n")
    done = steps.run(new, driver, "-N1 -n1 -c1")
    assert "sizes 1.0 0" in done.out, str(done)


def test_a_job_file_of_azure(steps, new, cluster):
    tool = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist"))
    run = readable_copy(tool.parent / "aml-run")  # beside the copy of aml-dist
    line = f"cp -r {ROOT}/contrib/examples/ray {steps.folder}/ && cd {steps.folder}/ray && {run} job.yml --wait --cpus-per-task=1"
    done = cluster.run(line, env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    assert done.status == 0 and '"good": true' in done.out, str(done)
