"""alice and bob on the same nodes at the same time: neither sees, ends, or hinders what the other does."""

import re

import pytest
from cluster import PROBE, READABLE, ROOT, Cluster, read_reports, readable_copy
from oracle import check_pytorch
from test_collective import program  # noqa: F401  a fixture
from test_faults import SERVERS, Background, wait_until
from test_first_failure import by_rank

HOLD = ("/usr/bin/python3 -c \"import socket,time; s=socket.socket({family}, {kind}); s.bind({address}); "
        "{listen}; print('squats', flush=True); time.sleep(25)\"")


@pytest.fixture(autouse=True)
def nobody_stays(cluster: Cluster):
    yield
    for user in ("alice", "bob"):
        cluster.run(f"scancel --quiet --user {user}; while squeue -h --user {user} | grep -q .; do sleep 0.2; done", timeout=40)


def start(cluster: Cluster, workdir, user: str, command: str) -> Background:
    folder = workdir / user
    folder.mkdir()
    folder.chmod(0o777)
    return Background(cluster, folder, f"setpriv --reuid={user} --regid={user} --init-groups {command}")


def test_steps_of_two_users_share_no_port(cluster, workdir):
    steps = [start(cluster, workdir, user, f"srun --overcommit -w node[1-2] -N2 -n4 --aml-dist=pytorch {PROBE} 4")
             for user in ("alice", "bob")]
    ports = []
    for step in steps:
        tasks = read_reports(step.wait())
        check_pytorch(tasks)
        ports.append(tasks[0].env["MASTER_PORT"])
    assert ports[0] != ports[1]


def test_the_same_port_is_refused_by_name_to_the_second(cluster, workdir):
    first = start(cluster, workdir, "alice",
                  "srun --overcommit -w node1 -N1 -n1 --aml-dist=pytorch,master_port=23700 bash -c \"echo runs; sleep 12\"")
    first.says("runs")
    second = cluster.run("srun --overcommit -w node1 -N1 -n1 --aml-dist=pytorch,master_port=23700 true", user="bob")
    assert second.status != 0 and len(second.own_lines()) == 1, str(second)
    assert "23700 on node1 is taken by another step" in second.own_lines()[0], str(second)


def test_a_port_that_the_other_squats_is_a_sentence_and_can_be_avoided(cluster, workdir):
    """Any user of a node may bind its ports: the message names the port, and the next job gets another one."""
    squat = HOLD.format(family="socket.AF_INET", kind="socket.SOCK_STREAM", address="('0.0.0.0', 23701)", listen="s.listen()")
    squatter = start(cluster, workdir, "bob", f"srun --overcommit -w node1 -N1 -n1 {squatter_script(workdir, squat)}")
    squatter.says("squats")
    refused = cluster.run("srun --overcommit -w node1 -N1 -n2 --aml-dist=pytorch,master_port=23701 true", user="alice")
    assert refused.status != 0 and len(refused.own_lines()) == 1 and "taken by another program" in refused.own_lines()[0]
    check_pytorch(cluster.tasks("--overcommit -w node1 -N1 -n2 --aml-dist=pytorch", user="alice"))


def squatter_script(workdir, line: str):
    path = workdir / "squat"
    path.write_text(f"#!/bin/sh\nexec {line}\n")
    path.chmod(0o755)
    return path


ATTACKS = (
    "ln -s /etc/passwd /run/aml-dist/ports/23702", "mkdir /run/aml-dist", "touch /run/aml-dist/ports/x",
    "mv /run/aml-dist /run/other", "rm -rf /run/aml-dist", "ls /run/aml-dist/ports", "cat /run/aml-dist/ports/*",
    "/usr/bin/python3 -c 'import fcntl,glob; [fcntl.flock(open(f), 2) for f in glob.glob(\"/run/aml-dist/ports/*\")] and 0 or 1/0'")


def test_the_folder_of_leases_is_roots_alone(cluster, workdir):
    holder = start(cluster, workdir, "alice", "srun --overcommit -w node1 -N1 -n1 --aml-dist=pytorch bash -c \"echo runs; sleep 6\"")
    holder.says("runs")
    for attack in ATTACKS:
        done = cluster.run(attack, user="bob", on="node1")
        assert done.status != 0, str(done)
    assert "status 0" in holder.wait()


def test_the_launch_record_does_not_lead_root_to_files(cluster, workdir):
    """Paths in every value that root reads: none is opened, nothing appears."""
    trap = workdir / "trap"
    values = {name: f"../../../..{trap}" for name in ("MASTER_ADDR", "SLURM_AMLDIST_LAUNCH", "SLURM_AMLDIST_REPORT",
                                                      "AMLDIST_STAMP", "SLURM_CLUSTER_NAME")}
    done = cluster.run("srun --overcommit -w node1 -N1 -n1 --aml-dist=pytorch true", user="bob", env=values)
    assert done.status != 0 and len(done.own_lines()) == 1, str(done)
    assert not trap.exists()


def test_a_stranger_cannot_report_a_failure_or_end_servers(cluster, workdir):
    """srun's port can be reached by everybody; without the token of the step everything is ignored."""
    task = by_rank(r0="echo runs; sleep 6", r1="sleep 6", other="sleep 4; echo served").replace("'", '"')
    task = task.replace("$RANK", "\\$SLURM_PROCID")
    victim = start(cluster, workdir, "alice", f"srun --overcommit -w node1 -N1 -n4 --aml-dist={SERVERS} {task}")
    victim.says("runs")
    words = ["failed;0;0;9;1;node1", "refused;0;0;256;1;node1", "ended;worker;0;0;0;2", "ended;worker;1;0;0;2", "end"]
    send = ("import socket,re,subprocess\n"
            "ports=[int(l.split()[1].split(':')[1],16) for n in ('udp','udp6') for l in open('/proc/net/'+n).read().splitlines()[1:]]\n"
            "assert ports\n"
            "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            f"words={words!r}\n"
            "for port in ports:\n"
            " for code in ('0'*16,'f'*16,'00c0ffee00c0ffee'):\n"
            "  for word in words:\n"
            "   s.sendto(f'aml-dist;1;{code};{word}'.encode(),('127.0.0.1',port))\n"
            "   s.sendto(f'aml-dist;2;{code};{code};{code};{word}'.encode(),('127.0.0.1',port))\n"
            "print('sent')\n")
    forged = cluster.run(f"/usr/bin/python3 - <<'END'\n{send}\nEND", user="bob")
    assert forged.out == "sent\n", str(forged)
    text = victim.wait()
    assert "aml-dist: " not in text and "status 0" in text and text.count("served") == 2, text


def test_the_token_is_not_the_others_to_read(cluster, workdir):
    """Only the environment of alice's processes contains it."""
    victim = start(cluster, workdir, "alice", "srun --overcommit -w node1 -N1 -n1 --aml-dist=pytorch bash -c \"echo runs; sleep 5\"")
    victim.says("runs")
    for where in ("node1", None):
        done = cluster.run("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a AMLDIST_ ; "
                           "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -aoE '[0-9a-f]{16}'; true", user="bob", on=where)
        assert done.out == "", str(done)
    seen = cluster.run("squeue -o '%all'; scontrol show step; scontrol show job -dd", user="bob")
    shown = [line for line in seen.out.splitlines() if "SubmitLine=" not in line]  # what users typed, from 26.05 on
    assert not re.search(r"AMLDIST|token=", "\n".join(shown)), str(seen)


def test_no_signal_reaches_the_other(cluster, workdir):
    victim = start(cluster, workdir, "alice",
                   f"srun --overcommit -w node1 -N1 -n3 --aml-dist={SERVERS.replace('server_count=2', 'server_count=1')} "
                   "bash -c \"echo runs; sleep 5; echo ended well\"")
    victim.says("runs")
    done = cluster.run("pkill -9 aml-dist-mon; pkill -9 slurmstepd; pkill -9 sleep; kill -9 -1",
                       user="bob", on="node1")
    text = victim.wait()
    assert text.count("ended well") >= 2 and "status 0" in text, text + str(done)


def test_nothing_of_ours_lies_in_a_shared_folder(cluster):
    """No temporary file and no named socket: an attacker has nothing to replace."""
    # Flight recorders that other tests left, each in its user's folder; one test has no /dev/shm.
    cluster.run("rm -rf /dev/shm/aml-dist-* /tmp/aml-dist-*", on="node1")
    done = cluster.run("srun --overcommit -w node1 -N1 -n2 --aml-dist=pytorch bash -c '"
                       "ls -A /tmp /dev/shm /var/lock; grep -ac amldist /proc/net/unix; true'", user="alice")
    seen = done.out.replace("aml-dist-tests-dev.lock", "")  # of the test suite itself
    assert "aml" not in seen and set(re.findall(r"^\d+$", done.out, re.M)) == {"0"}, str(done)


FORGERY = """
import fcntl, os, pathlib, subprocess, sys, time
sys.path.insert(0, {folder!r})
from recorder_files import waiting, working
made = pathlib.Path("/dev/shm/aml-dist-20002")
made.mkdir()
made.chmod(0o755)
while not (steps := subprocess.run("squeue -h -s -u bob -o %i", shell=True, capture_output=True, text=True).stdout.split()):
    time.sleep(0.2)
held = []
for rank in range(2):
    recorder = working(rank, 2, 5, host="node1")
    recorder.job, recorder.created = steps[0], int((time.time() - 3600) * 1e9)
    path = (recorder if rank == 1 else waiting(recorder)).write(made / steps[0])
    held.append(open(path, "r+b"))
    fcntl.lockf(held[-1], fcntl.LOCK_EX)
print("forged", flush=True)
time.sleep(25)
"""


def test_nobody_forges_the_recorders_of_anothers_step(cluster, workdir):
    """Anybody can make /dev/shm/aml-dist-UID before its user does, and fill it with a hang."""
    readable_copy(ROOT / "tests/tools/recorder_files.py")
    script = workdir / "forge.py"
    script.write_text(FORGERY.format(folder=str(READABLE)))
    cluster.run("rm -rf /dev/shm/aml-dist-20002 /tmp/aml-dist-20002", on="node1")
    forger = start(cluster, workdir, "alice", f"srun --overcommit -w node1 -N1 -n1 /usr/bin/python3 {script}")
    wait_until(lambda: cluster.run("test -d /dev/shm/aml-dist-20002", on="node1").status == 0)
    victim = start(cluster, workdir, "bob", "srun --overcommit -w node1 -N1 -n2 --aml-dist=mpi,trace,hang=2 sleep 15")
    forger.says("forged")
    text = victim.wait()
    assert "status 0" in text and "hang: " not in text and "busy: " not in text, text
    cluster.run("rm -rf /dev/shm/aml-dist-20002", on="node1")


WITH_HER_ENVIRONMENT = ("import os,sys; variables = dict(pair.split('=', 1) for pair in open(sys.argv[1]).read().split('\\0') if pair); "
                        "more = {'AMLDIST_TEST_INIT_MS': '4000'} | ({'AMLDIST_BOOTSTRAP': 'pmix'} if 'pmix' in sys.argv else {}); "
                        "os.execve(sys.argv[2], sys.argv[2:4], variables | more)")


@pytest.mark.usefixtures("pmix")
def test_a_ranks_environment_does_not_let_a_stranger_into_a_world_over_pmix(cluster, workdir, program):
    """bob has all variables of alice's rank 1, on its node, and comes while rank 0 waits for it."""
    folder = re.search(r"LD_LIBRARY_PATH=(\S+)", program)[1]
    task = workdir / "task"
    task.write_text(f"#!/bin/bash\nif [ $SLURM_PROCID = 1 ]; then env -0 > {workdir}/alice/environment; echo waits\n"
                    f"until [ -e {workdir}/alice/go ]; do sleep 0.1; done; fi\nexec {folder}/program place\n")
    task.chmod(0o755)
    victim = start(cluster, workdir, "alice", f"env LD_LIBRARY_PATH={folder} AMLDIST_TEST_INIT_MS=40000 srun --overcommit "
                                              f"--mpi=pmix -w node[1-2] -N2 -n2 {task}")
    victim.says("waits")
    for bootstrap in ("", "pmix"):
        stranger = cluster.run(f'/usr/bin/python3 -c "{WITH_HER_ENVIRONMENT}" {workdir}/alice/environment {folder}/program '
                               f"place {bootstrap}", user="bob", on="node2", timeout=15)
        assert stranger.status != 0, str(stranger)  # over PMIx alone, libpmix keeps it waiting
        assert not re.search(r"^rank \d+ of ", stranger.out, re.MULTILINE), str(stranger)
    (workdir / "alice/go").touch()
    # libpmix's server may take alice's own rank 1 no more: then rank 0 says who is missing. Nobody computes with bob.
    wait_until(lambda: re.search(r"^rank 0 of 2, .*; unproven|rank 1 is missing in amldist_init", victim.text(), re.MULTILINE), 60)


PLAIN_CLIENT = ("import ctypes; from ctypes import create_string_buffer as room; pmix = ctypes.CDLL('libpmix.so.2'); "
                "print('PMIx_Init gives', pmix.PMIx_Init(room(1024), None, 0), flush=True); pmix.PMIx_Finalize(None, 0)")


@pytest.mark.parametrize("comes, outcome", [(False, "status 0"), (True, "status 124")])
@pytest.mark.usefixtures("pmix")
def test_a_plain_client_of_pmix_waits_after_a_stranger_as_well(cluster, workdir, comes, outcome):
    """Without libdist: what a stranger with a rank's environment can stall is PMIx's own start. Where it is no longer so, a
    paragraph of the threat model is wrong."""
    client = workdir / "client.py"
    client.write_text(PLAIN_CLIENT)
    client.chmod(0o644)
    task = workdir / "task"
    task.write_text(f"#!/bin/bash\nif [ $SLURM_PROCID = 1 ]; then env -0 > {workdir}/alice/environment; echo waits\n"
                    f"until [ -e {workdir}/alice/go ]; do sleep 0.1; done; fi\nexec timeout 10 /usr/bin/python3 {client}\n")
    task.chmod(0o755)
    victim = start(cluster, workdir, "alice", f"srun --overcommit --mpi=pmix -w node[1-2] -N2 -n2 {task}")
    victim.says("waits")
    if comes:
        stranger = cluster.run(f'timeout 5 /usr/bin/python3 -c "{WITH_HER_ENVIRONMENT}" {workdir}/alice/environment '
                               f"/usr/bin/python3 {client}", user="bob", on="node2", timeout=15)
        assert "PMIx_Init gives 0" not in stranger.out, str(stranger)
    (workdir / "alice/go").touch()
    text = victim.wait()
    assert outcome in text and text.count("PMIx_Init gives 0") == 2 - comes, text
