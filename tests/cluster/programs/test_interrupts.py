"""Ctrl-C in a terminal, where a launcher writes into a pipe: tee dies of it, and no process may go on with nobody to read."""

from __future__ import annotations

import re
import shlex

import pytest
from test_aml_run import command

# Runs a shell line in a terminal of its own, and presses Ctrl-C when the line has printed this word.
TERMINAL = """import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "--norc", "-c", sys.argv[1]])
seen = b""
pressed = False
while True:
    try:
        more = os.read(terminal, 65536)
    except OSError:
        break
    if not more:
        break
    seen += more
    if not pressed and seen.count(b"ready") == 2:
        os.write(terminal, b"\\x03")
        pressed = True
sys.stdout.write(seen.decode(errors="replace"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

ENDLESS = """import os, time
print("ready", flush=True)
while True:
    print("rank", os.environ["RANK"], flush=True)
    time.sleep(0.2)
"""


def check_that_nothing_is_left(cluster) -> None:
    for node in ("node1", "node2"):
        left = cluster.run("for i in {1..50}; do pgrep -f '[e]ndless.py' || exit 0; sleep 0.1; done; exit 1", on=node)
        assert left.status == 0, f"{node}: {left}"


@pytest.mark.parametrize("launcher", [("aml-mpirun", "-n", "2", "--map-by", "node", "--slurm=--mpi=none", "python3"),
                                      ("aml-torchrun", "--nnodes=2")])
def test_the_first_ctrl_c_ends_a_launcher_that_writes_into_a_pipe(cluster, workdir, launcher):
    (workdir / "endless.py").write_text(ENDLESS)
    (workdir / "terminal.py").write_text(TERMINAL)
    line = f"{command(*launcher, f'{workdir}/endless.py')} | tee {workdir}/log; echo ended: ${{PIPESTATUS[@]}}"
    done = cluster.run(f"cd {workdir} && python3 terminal.py {shlex.quote(line)}", user="alice", timeout=60)
    # Python ends by SIGINT, or is killed with its step before it has.
    assert done.status == 0 and re.search(r"ended: (130|137|143|255) 130", done.out), str(done)
    check_that_nothing_is_left(cluster)
    assert "ready" in (workdir / "log").read_text()


def test_the_first_ctrl_c_ends_a_kept_step_that_writes_into_a_pipe(cluster, workdir):
    (workdir / "endless.py").write_text(ENDLESS)
    (workdir / "terminal.py").write_text(TERMINAL)
    (workdir / "job.sh").write_text(f"trap : INT\n{command('aml-dist', 'keep')} --health off -- srun --ntasks-per-node=1 --aml-dist=pytorch --mpi=none "
                                    f"python3 {workdir}/endless.py | tee {workdir}/log\necho ended: ${{PIPESTATUS[@]}}\n")
    done = cluster.run(f"cd {workdir} && python3 terminal.py 'salloc -Q -N2 bash job.sh'", user="alice", timeout=60)
    assert "keep: not started again: cancelled, signal 2" in done.out and re.search(r"ended: (130|137|143) 130", done.out), str(done)
    check_that_nothing_is_left(cluster)
    assert "ready" in (workdir / "log").read_text()
