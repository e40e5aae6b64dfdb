"""`aml-dist ray` with the real Ray on the real cluster: what works."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import threading
import time

import pytest
from conftest import DEBIAN, ROOT, readable_copy
from ray_drivers import DATA, PLACEMENT, ROLLOUTS, RUNNER
from rays import HELLO, SHAPE, SLOW, WAITS, Running, installed, own, steps, wait_until  # noqa: F401 (steps is a fixture)

EXAMPLE = ROOT / "contrib/examples/ray/src/driver.py"


@pytest.fixture(params=["new", "old"])
def ray(request):
    return installed(request.param)


@pytest.fixture
def new():
    return installed("new")


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


def test_many_starts_and_stops_leave_nothing(steps, new):
    """AMLDIST_SOAK_RAYS=100 before a release."""
    for number in range(int(os.environ.get("AMLDIST_SOAK_RAYS", "2"))):
        done = steps.run(new, f"bash -c 'exit {number % 2}'", "-N1 -n1 -c2")
        assert done.status == number % 2 and steps.wait_until_clean() == {}, str(done)


def test_tune_runs_its_trials(steps, new):
    done = steps.run(new, f"python {EXAMPLE} --tune 16 --points 4000")
    assert done.status == 0 and '"best": 3.0' in done.out, str(done)


@pytest.mark.parametrize("driver", [DATA, PLACEMENT, ROLLOUTS, RUNNER], ids=["data", "placement", "rollouts", "runner"])
def test_libraries_find_the_cluster(steps, new, driver):
    done = steps.run(new, steps.driver(driver), "-N4 --ntasks-per-node=1 --cpus-per-task=2", user="alice")
    assert done.status == 0 and "result: True" in done.out, str(done)


def test_jobs_are_submitted_to_the_cluster(steps, new):
    """As verl's documents have it; `ray job submit` finds the dashboard by RAY_ADDRESS."""
    done = steps.run(new, f"ray job submit -- {steps.driver(RUNNER)}", options="--dashboard", user="alice")
    assert done.status == 0 and "result: True" in done.out, str(done)


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
    """Another user's driver on the same node has the address but not the token; with the token it would get in."""
    running = Running(steps, new, WAITS.replace("str(os.getpid())", "os.environ['RAY_ADDRESS'] + ' ' + os.environ['RAY_AUTH_TOKEN']"),
                      user="alice", shape="-N1 -n1 -c1 -w node1")
    address, token = running.up.read_text().split()
    stranger = steps.driver(f"import ray\ntry:\n    ray.init('{address}', log_to_driver=False)\n    print('in')\n"
                            "except BaseException as e:\n    print('out', type(e).__name__)\n", "stranger.py")
    for with_token, expected in [({}, "out"), ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}, "in")]:
        done = steps.cluster.run(f"cd /tmp && HOME=/tmp timeout 120 {stranger}", user="alice" if with_token else "bob", on="node1",
                                 env={"PATH": f"{new}:{DEBIAN}", **with_token}, timeout=150)
        looked = steps.cluster.run("ls /tmp/aml-ray-*", user="bob", on="node1")
        assert "Permission denied" in looked.err and not looked.out, str(looked)
        assert done.out.split()[:1] == [expected] or (expected == "out" and done.status == 124), str(done)
    running.signal("TERM", "node1", "waits.py")
    running.end()


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


@pytest.mark.parametrize("backend", ["gloo", "amldist"])
def test_train_trains_on_all_nodes(steps, new, backend):
    done = subprocess.run([new / "python", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("no PyTorch beside Ray: run tests/frameworks/install --rays with Debian's python3-torch")
    if backend == "amldist" and tuple(int(each) for each in done.stdout.split(".")[:2]) < (2, 6):
        pytest.skip(f"PyTorch {done.stdout.strip()} is too old for amldist: install a newer one in {new.parent}")
    library = pathlib.Path(os.environ.get("AMLDIST_LIBRARY", ROOT / "build-development/lib/libamldist.so"))
    mine = {"PYTHONPATH": f"{ROOT}/libdist/api/python", "AMLDIST_LIBRARY": str(readable_copy(library)), "OMP_NUM_THREADS": "1"}
    done = steps.run(new, f"python {EXAMPLE} --train {backend} --points 4000", env=mine)
    assert done.status == 0 and '"good": true' in done.out and '"ratio"' in done.out, str(done)


def test_symmetric_run_by_the_user(steps, new):
    driver = steps.driver(HELLO)
    line = f"ray symmetric-run --address $RAY_ADDRESS --min-nodes $WORLD_SIZE --num-cpus 2 -- {driver}"
    done = steps.cluster.run(f"srun {SHAPE} --aml-dist=ray bash -c '{line}'", env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    assert done.status == 0 and "driver: ['node1', 'node2'] 4.0" in done.out, str(done)


def test_the_dashboard_answers_where_aml_run_says(steps, new, cluster):
    tool = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist"))
    run = readable_copy(tool.parent / "aml-run")
    out = steps.folder / "dashboard.out"
    out.unlink(missing_ok=True)
    driver = steps.driver(WAITS, "waits.py")
    line = f"cd {steps.folder} && {run} --kind ray -N2 --cpus-per-task 2 --dashboard --wait -- {driver} >{out} 2>&1"
    thread = threading.Thread(target=lambda: cluster.run(line, env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW))
    thread.start()
    try:
        wait_until(lambda: "ray: dashboard: ssh -L" in (out.read_text() if out.exists() else "") or not thread.is_alive(), SLOW)
        said = re.search(r"ray: dashboard: ssh -L (\d+):127\.0\.0\.1:\1 (node\d), then (http://\S+) \(its token is in (\S+) on \2\)", out.read_text())
        assert said, out.read_text()
        get = f"curl -s -o /dev/null -w '%{{http_code}}' {said[3]}/api/version"
        assert cluster.run(get, on=said[2]).out == "401"
        assert cluster.run(f"{get} -H \"Authorization: Bearer $(cat {said[4]})\"", on=said[2]).out == "200"
    finally:  # the driver ends at SIGTERM; a mere scancel kills aml-dist after KillWait, 2 s here, before it has removed Ray's folder
        cluster.run("scancel -s TERM -u root")
        thread.join(120)
        cluster.run("scancel -u root")


def test_a_job_array_and_two_steps_of_a_job(steps, new, cluster):
    """At once on one node: each has ports, a folder and a cluster of its own."""
    driver = steps.driver(HELLO)
    step = steps.line(driver, "-N1 -n1 -c1 --overlap --overcommit")
    (steps.folder / "array.sh").write_text(f"#!/bin/bash\n{step} & first=$!\n{step} & second=$!\nwait $first && wait $second && echo both\n")
    for each in steps.folder.glob("array-*"):
        each.unlink()
    line = f"sbatch --wait --array=0-1 -N1 -n1 -c1 -w node1 -O -o {steps.folder}/array-%a {steps.folder}/array.sh"
    done = cluster.run(line, env={"PATH": f"{new}:{DEBIAN}"}, timeout=SLOW)
    texts = [each.read_text() for each in sorted(steps.folder.glob("array-*"))]
    assert done.status == 0 and len(texts) == 2, str(done)
    assert all(text.count("driver: ['node1'] 1.0") == 2 and "both" in text for text in texts), texts
    assert len(set(re.findall(r" at (10\.\S+):", "".join(texts)))) == 4, texts


def test_keep_starts_it_again(steps, new, cluster):
    driver = steps.driver("import os, pathlib\n" + HELLO + "up = pathlib.Path(__file__).with_name('again')\n"
                          "if os.environ['AMLDIST_RESTART'] == '0':\n    up.write_text('up')\n    __import__('time').sleep(600)\n")
    (steps.folder / "again").unlink(missing_ok=True)
    out = steps.folder / "keep.out"
    (steps.folder / "keep.sh").write_text(f"#!/bin/bash\ncd {steps.folder}\n{steps.tool} keep --spares 1 -- {steps.line(driver, '--ntasks-per-node=1 -c2')}\n")
    line = f"sbatch --parsable --exclusive -N3 --ntasks-per-node=1 -c2 -o {out} {steps.folder}/keep.sh"
    job = cluster.run(line, env={"PATH": f"{new}:{DEBIAN}"}).out.strip()
    assert wait_until((steps.folder / "again").exists, SLOW), out.read_text()
    assert cluster.run("pkill -KILL -o -f raylet/raylet", on="node2").status == 0
    wait_until(lambda: not cluster.run(f"squeue -h -j {job}").out.strip(), SLOW)
    text = out.read_text()
    assert text.count("driver: [") == 2 and "keep: start 1 on node1, node2" in text, text
