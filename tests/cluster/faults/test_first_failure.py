"""When a step fails, srun prints one line about the first task that failed; if none failed, or a person ended the step, it
prints nothing."""

import re
import time

import pytest
from test_batch import script
from test_ports import hold, wait_for_step

LINE = re.compile(r"^aml-dist: first failure: rank (?P<rank>\d+) \(local (?P<local>\d+)\) on (?P<host>\S+): "
                  r"(?P<end>signal \d+ \(SIG[A-Z0-9]+\)(, core dumped)?|exit status \d+( \(128 \+ SIG[A-Z0-9]+\))?), "
                  r"(?P<after>\d+\.\d) s after the start(; (?P<advice>.*))?$")
STEP = "srun --aml-dist=pytorch"


def own_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "aml-dist: " in line]


def first_failure(text: str) -> re.Match:
    lines = own_lines(text)
    assert len(lines) == 1, text
    found = LINE.match(lines[0])
    assert found, lines[0]
    return found


UP = "bash -c 'echo up; exec sleep 60'"


def until_up(log, tasks: int) -> str:
    """A line of a shell that waits until so many tasks have written to the file that they are up."""
    return f"until [ $(grep -c ^up {log}) -ge {tasks} ]; do sleep 0.1; done 2>/dev/null"


def by_rank(**commands: str) -> str:
    """A task whose command depends on its rank: by_rank(r2="exit 7", other="sleep 3")."""
    cases = "".join(f"{name[1:]}) {command};; " for name, command in commands.items() if name != "other")
    return f"bash -c 'case $RANK in {cases}*) {commands['other']};; esac'"


@pytest.mark.parametrize("flags", ["-K", "--kill-on-bad-exit=1", "", "--kill-on-bad-exit=0"])
@pytest.mark.parametrize("death, end", [("exit 7", "exit status 7"), ("kill -9 $$", "signal 9 (SIGKILL)"),
                                        ("kill -TERM $$", "signal 15 (SIGTERM)")])
def test_one_rank_dies_and_the_others_live(cluster, flags, death, end):
    task = by_rank(r2=f"sleep 1; {death}", other="exec sleep 5")
    done = cluster.run(f"{STEP} {flags} -w node[1-4] -N4 -n4 {task}")
    assert done.status != 0, str(done)
    found = first_failure(done.err)
    assert (found["rank"], found["local"], found["host"], found["end"]) == ("2", "0", "node3", end), str(done)
    assert 1.0 <= float(found["after"]) < 4, found[0]
    advised = "--kill-on-bad-exit" in (found["advice"] or "")
    assert advised == (flags in ("", "--kill-on-bad-exit=0")), found[0]


@pytest.mark.parametrize("flags, own, advised", [("", "-K", True), ("", "--kill-on-bad-exit=1", True), ("-K", "--kill-on-bad-exit=0", False)])
def test_an_argument_of_the_program_is_no_option_of_srun(cluster, flags, own, advised):
    task = by_rank(r1="exit 7", other="exec sleep 3")
    done = cluster.run(f"{STEP} {flags} -N2 -n2 {task} {own}")
    assert ("--kill-on-bad-exit" in (first_failure(done.err)["advice"] or "")) == advised, str(done)


def test_the_line_comes_while_the_others_still_wait(cluster, workdir):
    task = by_rank(r1="exit 3", other="exec sleep 12")
    job = script(workdir, f"{STEP} {task} 2>{workdir}/err")
    identifier = cluster.run(f"sbatch --parsable --output=/dev/null -N2 -n2 {job}").out.strip()
    wait_for_step(cluster, identifier)
    deadline = time.monotonic() + 8
    while "first failure: rank 1" not in (workdir / "err").read_text():
        assert time.monotonic() < deadline, (workdir / "err").read_text()
        time.sleep(0.2)
    assert f"StepId={identifier}.0 " in cluster.run(f"scontrol show step {identifier}.0").out, "the step still runs"
    cluster.run(f"scancel {identifier}; while squeue -h -j {identifier} | grep -q .; do sleep 0.1; done")
    first_failure((workdir / "err").read_text())


@pytest.mark.parametrize("flags", ["", "-K"])
@pytest.mark.parametrize("death, end", [("exit $((RANK + 1))", r"exit status \d+"), ("kill -9 $$", r"signal 9 .*"),
                                        ("exit 1", "exit status 1"), ("kill -SEGV $$", r"signal 11 \(SIGSEGV\).*")])
def test_several_nodes_die_at_once(cluster, flags, death, end):
    done = cluster.run(f"{STEP} {flags} -N4 --ntasks-per-node=4 bash -c 'sleep 0.5; {death}'")
    found = first_failure(done.err)
    rank = int(found["rank"])
    assert re.fullmatch(end, found["end"]), found[0]
    assert (int(found["local"]), found["host"]) == (rank % 4, f"node{rank // 4 + 1}"), found[0]


def test_one_node_dies_at_once(cluster):
    done = cluster.run(f"{STEP} -K -w node[1-4] -N4 -n8 bash -c 'if [ $NODE_RANK = 3 ]; then sleep 1; kill -9 $$; fi; sleep 8'")
    found = first_failure(done.err)
    assert found["host"] == "node4" and found["rank"] in "67" and found["end"] == "signal 9 (SIGKILL)", found[0]


def test_a_kill_from_outside(cluster, workdir):
    """Somebody kills one process of one node; the others go on."""
    job = script(workdir, f"{STEP} -n3 bash -c 'echo $$ >{workdir}/pid.$RANK; exec sleep 5' &",
                 f"until [ -s {workdir}/pid.1 ]; do sleep 0.1; done",
                 f"srun --overlap -w node2 -N1 -n1 bash -c 'kill -9 $(cat {workdir}/pid.1)'", "wait")
    _, out = cluster.job_output(f"-w node[1-3] -N3 -n6 --overcommit {job}", workdir)
    found = first_failure(out)
    assert (found["rank"], found["host"], found["end"]) == ("1", "node2", "signal 9 (SIGKILL)"), out


@pytest.mark.parametrize("death, end", [
    ("/usr/bin/python3 -c \"import os; os.abort()\"", "exit status 134 (128 + SIGABRT)"),
    ("exec /usr/bin/python3 -c \"import os; os.abort()\"", "signal 6 (SIGABRT)"),
    ("exec /usr/bin/python3 -c \"import ctypes; ctypes.string_at(0)\"", "signal 11 (SIGSEGV)"),
    ("exec /usr/bin/python3 -c \"raise SystemExit(3)\"", "exit status 3"),
    ("exec /no/such/program 2>/dev/null", "exit status 127"),
])
def test_ends_are_named(cluster, death, end):
    """The first is what a shell makes of it: it runs the program and passes the end on."""
    done = cluster.run(f"{STEP} -N1 -n1 bash -c '{death}; exit $?'")
    assert first_failure(done.err)["end"].removesuffix(", core dumped") == end, str(done)


def test_a_program_that_is_not_there(cluster):
    found = first_failure(cluster.run(f"{STEP} -N1 -n2 /no/such/program").err)
    assert found["end"] == "exit status 2" and found["advice"] == "all 2 tasks ended this way", found[0]


@pytest.mark.parametrize("command", [f"{STEP} -N4 -n8 true", f"{STEP} -N2 -n2 -K true", f"{STEP} -N1 -n1 sleep 1.5",
                                     "srun --aml-dist=none -N2 -n2 bash -c 'exit 7'", "srun -N2 -n2 bash -c 'exit 7'",
                                     "srun -K -N2 -n2 bash -c 'kill -9 $$'"])
def test_nothing_when_all_is_well_or_without_the_option(cluster, command):
    done = cluster.run(command)
    assert own_lines(done.out + done.err) == [], str(done)


def test_nothing_of_it_reaches_a_task(cluster):
    done = cluster.run(f"{STEP} -N1 -n1 bash -c 'env; ls -l /proc/self/fd'")
    assert done.status == 0 and "RANK=0" in done.out, str(done)
    assert "AMLDIST_REPORT" not in done.out and "socket" not in done.out, str(done)


@pytest.mark.parametrize("submit, step", [("", "srun --aml-dist=pytorch"), ("--aml-dist=pytorch", "srun")])
def test_in_a_batch_script(cluster, workdir, submit, step):
    job = script(workdir, f"{step} {by_rank(r3='exit 5', other='sleep 2')}", f"{step} true", "exit 0")
    _, out = cluster.job_output(f"{submit} -N2 -n4 {job}", workdir)
    assert first_failure(out)["rank"] == "3", out


def test_two_steps_of_a_job_have_a_line_each(cluster, workdir):
    job = script(workdir, f"{STEP} bash -c 'exit 4'", f"{STEP} bash -c 'exit 5'", "exit 0")
    _, out = cluster.job_output(f"-N2 -n2 {job}", workdir)
    assert [LINE.match(line)["end"] for line in own_lines(out)] == ["exit status 4", "exit status 5"], out


def test_a_step_within_a_step(cluster, workdir):
    """The inner step fails and the outer one does not: the line is the inner srun's."""
    inner = f"{STEP} --overlap -N1 -n1 bash -c \"exit 6\""
    job = script(workdir, f"{STEP} -N1 -n1 bash -c '{inner}; exit 0'")
    _, out = cluster.job_output(f"-N2 -n2 --overcommit {job}", workdir)
    assert first_failure(out)["end"] == "exit status 6", out


@pytest.mark.parametrize("components", [
    "-N1 -n2 --aml-dist=pytorch {task} : -N1 -n2 {task}",
    "-N1 -n1 {task} : -N2 -n3 --aml-dist=pytorch {task}",
])
def test_heterogeneous_steps(cluster, components):
    done = cluster.run("srun " + components.format(task=by_rank(r3="sleep 0.5; exit 9", other="exec sleep 4")))
    found = first_failure(done.err)
    assert found["rank"] == "3" and found["end"] == "exit status 9", str(done)


def test_a_refused_step_has_its_sentence_and_no_more(cluster):
    done = cluster.run("srun -N2 -n4 --export=ALL,MASTER_PORT=abc --aml-dist=pytorch sleep 30", timeout=20)
    assert done.status != 0 and "first failure" not in done.err + done.out, str(done)


def test_a_step_refused_by_one_node(cluster, workdir):
    """The other node's tasks run already and are ended: they did not fail."""
    job = script(workdir, *hold(23997), "srun --overlap --aml-dist=pytorch,master_port=23997 sleep 30",
                 "scancel --signal=KILL --quiet $SLURM_JOB_ID.0", "exit 0")
    _, out = cluster.job_output(f"-w node[1-3] -N3 -n6 --overcommit {job}", workdir)
    assert len(own_lines(out)) == 1 and "port 23997 on node1 is taken" in out, out


TRAPS = ["exec sleep 60", 'trap "exit 1" TERM; sleep 60 & wait']


@pytest.mark.parametrize("task", TRAPS)
def test_scancel_is_no_failure(cluster, workdir, task):
    job = script(workdir, f"srun --aml-dist=pytorch --output={workdir}/tasks bash -c '{task}' 2>{workdir}/err")
    identifier = cluster.run(f"sbatch --parsable --output=/dev/null -N2 -n4 {job}").out.strip()
    wait_for_step(cluster, identifier)
    cluster.run(f"scancel {identifier}; while squeue -h -j {identifier} | grep -q .; do sleep 0.1; done")
    time.sleep(1)
    assert "first failure" not in (workdir / "err").read_text()


def test_scancel_of_srun_that_allocates_for_itself(cluster, workdir):
    log = workdir / "out"
    done = cluster.run(f"{STEP} -J victim -N2 -n4 {UP} >{log} & {until_up(log, 4)}; scancel -n victim; wait")
    assert "CANCELLED" in done.err and "first failure" not in done.err, str(done)


def test_scancel_after_a_failure_keeps_the_line(cluster, workdir):
    task, log = by_rank(r1="exit 3", other="exec sleep 60"), workdir / "err"
    done = cluster.run(f"{STEP} -J victim -N2 -n4 {task} 2>{log} & until grep -q 'first failure' {log}; do sleep 0.1; done; "
                       f"scancel -n victim; wait; cat {log} >&2")
    assert first_failure(done.err)["rank"] == "1", str(done)


def test_ctrl_c_twice(cluster, workdir):
    """srun's own job is then cancelled."""
    for attempt in range(3):
        log = workdir / str(attempt)
        done = cluster.run(f"{STEP} -N2 -n4 {UP} >{log} & {until_up(log, 4)}; kill -INT $!; sleep 0.2; kill -INT $!; wait")
        if done.err.count("one more within") < 2:  # on a busy machine the second can come too late to be one
            break
    assert "sending Ctrl-C" in done.err and "first failure" not in done.err, str(done)


def test_a_cancelled_step_is_told_as_what_it_is(cluster, workdir):
    """slurmctld tells nobody that a single step was cancelled: then the line says what was seen."""
    job = script(workdir, f"{STEP} {UP} >{workdir}/out &", until_up(workdir / "out", 4), "scancel $SLURM_JOB_ID.0", "wait",
                 "exit 0")
    _, out = cluster.job_output(f"-N2 -n4 {job}", workdir)
    assert first_failure(out)["advice"] == "all 4 tasks ended this way, as after scancel", out


@pytest.mark.parametrize("limit", ["sbatch", "srun"])
def test_the_time_limit_is_no_failure(cluster, workdir, limit):
    flags = {"sbatch": ("-t1", ""), "srun": ("", "-t1")}[limit]
    job = script(workdir, f"{STEP} {flags[1]} sleep 200", "sleep 1")
    _, out = cluster.job_output(f"{flags[0]} -N2 -n2 {job}", workdir, timeout=200)
    assert "TIME LIMIT" in out and "first failure" not in out, out


def test_rubbish_on_the_port_disturbs_nothing(cluster, workdir):
    """Datagrams without the token, and a flood of them."""
    send = """
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ports = [int(line.split()[1].split(":")[1], 16) for name in ("udp", "udp6") for line in open(f"/proc/net/{name}") if ":" in line.split()[0]]
for port in ports:
    for datagram in (b"", b"x" * 60000, b"aml-dist;2;" + b"0000000000000000;" * 3 + b"failed;1;0;9;1;node1"):
        for _ in range(2000):
            udp.sendto(datagram, ("127.0.0.1", port))
print("ports", len(ports))
"""
    path = workdir / "send.py"
    path.write_text(send)
    log, task = workdir / "out", f"bash -c 'echo up; until [ -e {workdir}/sent ]; do sleep 0.1; done'"
    done = cluster.run(f"{STEP} -N2 -n2 {task} >{log} & {until_up(log, 2)}; /usr/bin/python3 {path}; touch {workdir}/sent; "
                       "wait $!; echo status $?")
    assert "ports 1" in done.out and "status 0" in done.out and own_lines(done.err) == [], str(done)
