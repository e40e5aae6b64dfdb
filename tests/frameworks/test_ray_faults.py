"""`aml-dist ray` when something is wrong: each part killed, each stopped, no room, no memory, no network, bad input."""

from __future__ import annotations

import re
import time

import pytest
from conftest import DEBIAN
from rays import HELLO, SHAPE, SLOW, Running, installed, own, steps, wait_until  # noqa: F401 (steps is a fixture)

AML_DIST = r"/aml-dist ray "
STEPD = r"slurmstepd: \[[0-9]+\.[0-9]+\]"
FAULTS = {  # signal, where, whom, how the sentence begins
    "GCS": ("KILL", "node1", "gcs/gcs_server", r"ray: node1: .*gcs_server ended with signal 9"),
    "raylet of the head": ("KILL", "node1", "raylet/raylet", r"ray: node1: raylet ended with signal 9"),
    "raylet of a worker": ("KILL", "node2", "raylet/raylet", r"ray: node2: raylet ended with signal 9"),
    "ray start of the head": ("KILL", "node1", "bin/ray start", r"ray: node1: 'ray start' ended with signal 9"),
    "ray start of a worker": ("KILL", "node2", "bin/ray start", r"ray: node2: 'ray start' ended with signal 9"),
    "aml-dist of the head": ("KILL", "node1", AML_DIST, r"ray: node2 has lost the head|first failure: rank 0 .*signal 9"),
    "aml-dist of a worker": ("KILL", "node2", AML_DIST, r"ray: node2: its aml-dist ray has ended"),
    "monitor of the head": ("KILL", "node1", "ray/autoscaler/_private/monitor.py", r"ray: node1: monitor.* ended with signal 9"),
    "log monitor of a worker": ("KILL", "node2", "ray/_private/log_monitor.py", r"ray: node2: log_monitor.* ended with signal 9"),
    "agent of a worker": ("KILL", "node2", "DashboardAgent|dashboard/agent.py", r"ray: node2: "),
    "slurmstepd of the head": ("KILL", "node1", STEPD, r"ray: node1: slurmstepd has ended there"),
    "slurmstepd of a worker": ("KILL", "node2", STEPD, r"ray: node2: slurmstepd has ended there"),
    "GCS, stopped": ("STOP", "node1", "gcs/gcs_server", r"ray: node1: gcs_server .* is stopped \(SIGSTOP\) for"),
    "raylet of the head, stopped": ("STOP", "node1", "raylet/raylet", r"ray: node1: raylet .* is stopped \(SIGSTOP\) for"),
    "raylet of a worker, stopped": ("STOP", "node2", "raylet/raylet", r"ray: node2: raylet .* is stopped \(SIGSTOP\) for|ray: node2: raylet ended"),
}


@pytest.fixture
def new():
    return installed("new")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_part_that_ends_or_stops_ends_the_step_and_is_named(steps, new, fault):
    signal, where, whom, sentence = FAULTS[fault]
    running = Running(steps, new)
    running.signal(signal, where, whom)
    done = running.end()
    assert done.status != 0 and re.search(sentence, done.err), str(done)
    if "aml-dist" in fault or "slurmstepd" in fault:  # what they could not remove the next step of the user removes
        assert steps.run(new, "true").status == 0


def test_an_actor_that_is_killed_is_the_drivers_affair(steps, new):
    """Ray tells the driver, which may go on."""
    driver = steps.driver("""import os, ray
ray.init()
@ray.remote
class Actor:
    def process(self): return os.getpid()
    def end(self): os.kill(os.getpid(), 9)
actor = Actor.remote()
print("actor", ray.get(actor.process.remote()) > 0)
try: ray.get(actor.end.remote())
except ray.exceptions.RayActorError: print("it has ended")
""")
    done = steps.run(new, driver)
    assert done.status == 0 and "it has ended" in done.out, str(done)


def has_failed(done) -> bool:
    """Slurm 22.05's srun ends with 0 if a node needs more than KillWait, 2 s here, and two seconds."""
    return done.status != 0 or "Timed out waiting for job step to complete" in done.err


@pytest.mark.parametrize("who", ["driver", "aml-dist of the head"])
def test_a_stopped_driver_or_head_ends_with_scancel(steps, new, who):
    running = Running(steps, new)
    if who == "driver":
        assert steps.cluster.run(f"kill -STOP {running.driver}", on="node1").status == 0
    else:
        running.signal("STOP", "node1", AML_DIST)
    assert steps.cluster.run(f"scancel {running.job()}").status == 0
    assert has_failed(running.end())
    wait_until(lambda: not steps.cluster.run("squeue -h").out, 60)
    assert steps.run(new, "true").status == 0  # what KillWait was too short for the next step of the user removes


def test_a_stopped_aml_dist_is_named_at_the_end(steps, new):
    """It cannot end its node's Ray; Slurm can."""
    running = Running(steps, new, "import time\n" + ENDS_ON_REQUEST)
    running.signal("STOP", "node2", AML_DIST)
    (steps.folder / "go").touch()
    assert wait_until(lambda: not steps.cluster.run("pgrep -f [g]cs/gcs_server", on="node1").out, 60)
    time.sleep(2)
    if running.thread.is_alive():
        assert steps.cluster.run(f"scancel {running.job()}").status == 0
    done = running.end()
    assert steps.run(new, "true").status == 0
    assert re.search(r"ray: node2: aml-dist ray has not ended within 10 s: if it is stopped, scancel \d+\.0 ends the step", done.err), str(done)


ENDS_ON_REQUEST = """import os, pathlib, ray, time
ray.init()
folder = pathlib.Path(__file__).parent
(folder / "go").unlink(missing_ok=True)
(folder / "up").write_text(str(os.getpid()))
while not (folder / "go").exists(): time.sleep(0.2)
"""


def test_the_time_limit_reaches_the_driver(steps, new):
    driver = steps.driver("import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: (print('saved', flush=True), sys.exit(3)))\ntime.sleep(900)\n")
    done = steps.run(new, driver, f"{SHAPE} --time=1")
    assert has_failed(done) and "saved" in done.out and re.search("time limit|TIME LIMIT", done.err), str(done)
    wait_until(lambda: not steps.cluster.run("squeue -h").out, 60)
    assert steps.run(new, "true").status == 0


def test_a_node_that_loses_its_network_is_named(steps, new, cluster):
    running = Running(steps, new)
    assert cluster.devcluster("break", "node2", "link").status == 0
    try:
        done = running.end(240)
        assert done.status != 0 and re.search(r"node2", done.err), str(done)
    finally:
        cluster.devcluster("heal", "node2")


SMALL = "mount -o remount,size={} /dev/shm"
ROOM = {  # how it is broken and mended on node2, the status, the sentence
    "full /tmp": ("", "", 1, r"ray: node2: /tmp has 0 MiB free"),
    "small /dev/shm": (SMALL.format("16M"), SMALL.format("50%"), 0, r"ray: node2: /dev/shm has 16 MiB free, Ray needs at least 80 MiB"),
    "no /dev/shm": ("mount -t tmpfs -o ro,size=4k none /dev/shm", "umount /dev/shm", 0, r"ray: node2: /dev/shm has 0 MiB free"),
}


@pytest.mark.parametrize("fault", ROOM)
def test_a_node_without_room(steps, new, cluster, fault):
    broken, mended, status, words = ROOM[fault]
    done = cluster.run(broken, on="node2") if broken else cluster.devcluster("break", "node2", "full-tmp")
    assert done.status == 0, str(done)
    try:
        done = steps.run(new, steps.driver(HELLO))
        assert done.status == status and re.search(words, done.err), str(done)
    finally:
        assert (cluster.run(mended, on="node2") if mended else cluster.devcluster("heal", "node2")).status == 0


def test_a_disk_that_becomes_full_does_not_hang(steps, new, cluster):
    """The logs of node2 have no place any more: the driver's work ends, well or badly, and so does the step."""
    small = cluster.run("mkdir -p /var/tmp/small && mount -t tmpfs -o size=80m,mode=1777 none /var/tmp/small", on="node2")
    assert small.status == 0 and cluster.run("mkdir -p /var/tmp/small", on="node1").status == 0, str(small)
    try:
        running = Running(steps, new, ENDS_ON_REQUEST, options="--temp-dir=/var/tmp/small")
        assert cluster.run("dd if=/dev/zero of=/var/tmp/small/full bs=1M 2>/dev/null; true", on="node2").status == 0
        (steps.folder / "go").touch()
        assert running.end().status == 0
    finally:
        cluster.run("umount -l /var/tmp/small", on="node2")


def test_no_folder_is_shared(steps, new, cluster):
    """The driver, its folder and everything that Ray writes are on node1 only."""
    steps.driver(HELLO, "alone.py")
    hide = f"mount -t tmpfs none {steps.folder}"
    assert cluster.run(hide, on="node2").status == 0
    try:
        done = steps.run(new, f"python {steps.folder}/alone.py", f"{SHAPE} -D /")
        assert done.status == 0 and "driver: ['node1', 'node2'] 4.0" in done.out, str(done)
    finally:
        cluster.run(f"umount {steps.folder}", on="node2")


# ------------------------------------------------------------------------------------------------------------------- bad input


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


@pytest.mark.parametrize("offset", [0, 4])
def test_a_port_in_use_is_named(steps, new, cluster, offset):
    """The step's own port, and one that Ray's ports are derived from it for."""
    listener = f"import socket,time; s=socket.socket(); s.bind((\"\",{28500 + offset})); s.listen(); print(\"bound\",flush=True); time.sleep(60)"
    assert cluster.run(f"setsid /usr/bin/python3 -c '{listener}' >/tmp/bound 2>&1 & sleep 2; cat /tmp/bound", on="node1").out.strip() == "bound"
    try:
        done = steps.run(new, "true", option="ray,master_port=28500")
        assert done.status != 0 and re.search(rf"port {28500 + offset}\b.*node1|node1.*port {28500 + offset}\b", done.err), str(done)
    finally:
        cluster.run("pkill -f 's.listen()'", on="node1")


def test_a_driver_that_daemonises_ends_with_its_first_process(steps, new):
    daemon = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(900)\n"
    done = steps.run(new, steps.driver(daemon))
    assert done.status == 0, str(done)  # nothing is left: see `steps`


def test_names_with_blanks(steps, new):
    folder = steps.folder / "with a blank"
    folder.mkdir(exist_ok=True)
    (folder / "the driver.py").write_text("import sys, os\nprint('words', sys.argv[1:], os.getcwd())\n")
    done = steps.run(new, "python 'the driver.py' 'a b' '$HOME' ''", f"-N1 -n1 -D '{folder}'")
    assert done.status == 0 and f"words ['a b', '$HOME', ''] {folder}" in done.out, str(done)
    done = steps.run(new, "true", "-N1 -n1", options="--temp-dir='/tmp/a b'")
    assert done.status == 1 and "cannot be made" in done.err, str(done)
