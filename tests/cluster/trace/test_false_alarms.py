"""Healthy programs that look like hangs: a rank is away for much longer than hang=, and then comes. Nobody is named as hung.

It is told once as busy, where one can see what it does; the step goes on to its end.
"""

import re
import shutil

import pytest
from hang_sentences import OWN, hang_lines

# `away` is what rank 2 does for so many seconds while the others wait in a barrier; the program does it twice.
PROGRAM = """import os, signal, socket, subprocess, sys, threading, time
from mpi4py import MPI
world, kind, folder = MPI.COMM_WORLD, sys.argv[1], sys.argv[2]
seconds = 10

def until(work, end):
    while time.monotonic() < end:
        work()

def spin(end):
    until(lambda: sum(range(10000)), end)

def in_children(number, end):
    children = []
    for _ in range(number):
        child = os.fork()
        if child == 0:
            spin(end)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)

def write_checkpoint(end):
    with open(f'{folder}/checkpoint', 'wb') as file:
        def write():
            file.seek(0)
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
            time.sleep(0.05)
        until(write, end)

def wait_for_lock(end):
    import fcntl
    holder = os.fork()
    if holder == 0:
        with open(f'{folder}/lock', 'w') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(end - time.monotonic())
        os._exit(0)
    time.sleep(0.5)
    with open(f'{folder}/lock', 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    os.waitpid(holder, 0)

def download(end):
    server = socket.create_server(('127.0.0.1', 0))
    def serve():
        peer = server.accept()[0]
        until(lambda: (peer.sendall(bytes(20000)), time.sleep(0.01)), end)
        peer.close()
    sender = os.fork()
    if sender == 0:
        os.setsid()
        if os.fork() == 0:  # as a server is: no child of this rank
            serve()
        os._exit(0)
    os.waitpid(sender, 0)
    with socket.create_connection(server.getsockname()) as own:
        while own.recv(1 << 16):
            pass

def in_debugger(end):
    subprocess.run([sys.executable, '-c', '''if 1:
        import ctypes, sys, time
        libc = ctypes.CDLL(None)
        pid = int(sys.argv[1])
        libc.ptrace(16, pid, None, None)
        time.sleep(float(sys.argv[2]))
        libc.ptrace(17, pid, None, None)''', str(os.getpid()), str(end - time.monotonic())])

def dump_core(end):
    pid = os.getpid()
    for _ in range(3):
        subprocess.run(['gdb', '--batch', '-p', str(pid), '-ex', f'generate-core-file {folder}/core', '-ex', 'detach'],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    spin(end)

def page_memory(end):
    import mmap
    with open(f'{folder}/memory', 'wb') as file:
        file.truncate(256 << 20)
    with open(f'{folder}/memory', 'r+b') as file:
        memory = mmap.mmap(file.fileno(), 0)
    def touch():
        for place in range(0, len(memory), 4096):
            memory[place] = 1
        memory.flush()
        memory.madvise(mmap.MADV_DONTNEED)
    until(touch, end)

def evaluate(end):
    until(lambda: (sum(range(200000)), time.sleep(0.002)), end)

def compile_in_children(end):
    with open(f'{folder}/unit.cpp', 'w') as file:
        file.write('#include <bits/stdc++.h>\\nint main() { std::map<std::string, std::regex> all; return int(all.size()); }\\n')
    again = f'while :; do g++ -O2 -c -o {folder}/unit.o {folder}/unit.cpp; done'  # on a busy machine once takes longer than this may
    compiler = subprocess.Popen(['sh', '-c', again], start_new_session=True)
    time.sleep(end - time.monotonic())
    os.killpg(compiler.pid, signal.SIGKILL)
    compiler.wait()

def in_threads(end):
    # Natively, so that all may run at once; on one processor, beside another process, each gets little of it.
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    crowd = []
    for _ in range(12):
        crowd.append(os.fork())
        if crowd[-1] == 0:
            os.setsid()
            spin(end)
            os._exit(0)
    os.nice(15)  # the crowd, which is not, takes nearly all
    import hashlib
    threads = [threading.Thread(target=until, args=(lambda: hashlib.pbkdf2_hmac('sha256', b'a', b'b', 5000), end)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.nice(-15)
    os.sched_setaffinity(0, processors)
    for child in crowd:
        os.waitpid(child, 0)

away = dict(compile=compile_in_children, threads=in_threads, tokenise=lambda end: in_children(4, end), checkpoint=write_checkpoint, lock=wait_for_lock,
            download=download, debugger=in_debugger, gcore=dump_core, swap=page_memory, evaluation=evaluate)
for _ in range(30):
    world.barrier()
if world.rank == 2:
    away[kind](time.monotonic() + seconds)
world.barrier()
print('well', world.rank)
"""
COMPUTES = r"it (computes \(|waits for a processor)"
BUSY = {"compile": COMPUTES, "threads": COMPUTES, "tokenise": COMPUTES, "checkpoint": "it (reads and writes|waits for a|computes)", "lock": "it waits for a (lock on a file|processor)",
        "download": "it (waits for data from a socket|computes|waits for a processor)", "debugger": None, "gcore": None,
        "swap": "it (computes|waits for a)", "evaluation": COMPUTES}
STEP = "env OMPI_MCA_mpi_yield_when_idle=1 srun --mpi=pmix -w node[1-2] -N2 -n4 --ntasks-per-node=2 --aml-dist=mpi,hang=4,hang_busy=20"


@pytest.fixture(scope="module")
def traced(traced_libraries, cluster):
    if cluster.run("/usr/bin/python3 -c 'import mpi4py'").status != 0:
        pytest.skip("no mpi4py")


@pytest.mark.parametrize("kind", BUSY)
def test_a_rank_that_is_away_is_not_hung(cluster, pmix, traced, workdir, kind):
    tool = {"gcore": "gdb", "compile": "g++"}.get(kind)
    if tool and shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    (workdir / "program.py").write_text(PROGRAM)
    done = cluster.run(f"cd {workdir} && {STEP} /usr/bin/python3 program.py {kind} {workdir}")
    assert done.status == 0 and done.out.count("well") == 4 and not hang_lines(done) and "straggler" not in done.err, done
    busy = [line for line in done.err.splitlines() if line.startswith("aml-dist: busy: ")]
    assert len(busy) <= 1 and all(f"{OWN} has not called it" in line for line in busy), done
    if BUSY[kind]:
        assert busy and re.search(f": {BUSY[kind]}", busy[0]), done


def test_a_suspended_step_is_not_hung(cluster, pmix, traced, workdir):
    (workdir / "program.py").write_text(PROGRAM)
    step = f"{STEP} /usr/bin/python3 program.py evaluation {workdir}"
    done = cluster.run(f"cd {workdir} && {{ {step} & sleep 5; job=$(squeue -ho %A | tail -1); scontrol suspend $job; sleep 12; scontrol resume $job; wait $!; }}")
    assert done.status == 0 and done.out.count("well") == 4 and not hang_lines(done), done


FUTURES = """import time
from mpi4py.futures import MPICommExecutor
from mpi4py import MPI
with MPICommExecutor(MPI.COMM_WORLD, root=0) as pool:
    if pool is not None:
        time.sleep(12)  # before there is work
        assert sum(pool.map(abs, range(10))) == 45
print('well', MPI.COMM_WORLD.rank)
"""


def test_workers_without_work_are_not_hung(cluster, pmix, traced, workdir):
    (workdir / "futures.py").write_text(FUTURES)
    done = cluster.run(f"cd {workdir} && {STEP} /usr/bin/python3 futures.py")
    assert done.status == 0 and done.out.count("well") == 4 and not hang_lines(done), done
