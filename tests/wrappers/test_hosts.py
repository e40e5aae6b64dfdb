"""Hosts as people write them: repeated lines, localhost, long names and addresses, held against the real mpirun's reading."""

from __future__ import annotations

import collections
import os
import random
import re
import shutil
import subprocess

import pytest
from conftest import NOT_FOUND, USAGE, Command

MPIRUN = shutil.which("mpirun.openmpi")
EXAMPLE = "s13n09\n" * 6 + "s13n10\ns13n10\ns13n11\ns13n11\n"
SINFO = "printf '%s\\n' 'n1 10.0.0.1' 'n2 10.0.0.2' 'n3 n3'"


def options(tool: str, *words: str, **run) -> dict[str, str]:
    """srun's options in the line of a launcher."""
    line = Command(f"aml-{tool}").good("--dry-run", *words, "x", **run).text
    return dict(re.findall(r"--([a-z-]+)=(\S+)", line.split(" x")[0]))


def per_host(told: dict[str, str]) -> dict[str, int]:
    """How many tasks each host gets."""
    names = told["nodelist"].split(",")
    if told.get("distribution") == "arbitrary":
        return dict(collections.Counter(names))
    return dict.fromkeys(names, int(told["ntasks-per-node"]))


def hostfile(folder, text: str) -> str:
    (folder / "hosts").write_text(text)
    return str(folder / "hosts")


@pytest.mark.parametrize("text, slots", [
    (EXAMPLE, {"s13n09": 6, "s13n10": 2, "s13n11": 2}), ("a slots=2\na\n", {"a": 3}), ("a\na\nb slots=1\n", {"a": 2, "b": 1}),
    ("\ufeffa slots=1\r\n# a comment\r\n\r\nb slots=1 # too\r\n", {"a": 1, "b": 1}),
    ("".join(f"n{i % 1000}\n" for i in range(100_000)), {f"n{i}": 100 for i in range(1000)}),
])
def test_each_line_of_a_host_is_a_slot(tmp_path, text, slots):
    assert per_host(options("mpirun", "--hostfile", hostfile(tmp_path, text))) == slots


@pytest.mark.parametrize("text, line", [("a slots=2\na slots=2\n", 2), ("a\nb\na slots=1\n", 3)])
def test_two_numbers_of_slots_are_refused_as_mpirun_does(tmp_path, text, line):
    said = Command("aml-mpirun").refusal(USAGE, "--hostfile", hostfile(tmp_path, text), "x")
    assert f"/hosts:{line}: 'a' stands in an earlier line, too" in said


def real_slots(file: str, processes: int) -> dict[str, int] | None:
    """Processes of each host in mpirun's own map; None: it does not take the file."""
    allow = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run([MPIRUN, *allow, "--hostfile", file, "-np", str(processes), "--display-map", "--do-not-launch", "true"],
                          capture_output=True, text=True, timeout=60, check=False)
    found = re.findall(r"Data for node: (\S+)\s.*Num procs: (\d+)", done.stdout)
    return {name: int(count) for name, count in found} or None


@pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed (Debian: openmpi-bin)")
def test_random_hostfiles_are_read_as_mpirun_reads_them(tmp_path):
    seed = int(os.environ.get("AMLDIST_SOAK_SEED", random.randrange(1 << 30)))
    source = random.Random(seed)
    taken = 0
    for _ in range(int(os.environ.get("AMLDIST_SOAK_HOSTFILES", "40"))):
        names = [f"n{i}" for i in range(1, source.randint(2, 4))]
        lines = [f"{source.choice(names)}{source.choice(['', '', ' slots=%d' % source.randint(1, 4)])}" for _ in range(source.randint(1, 8))]
        text = "\n".join(lines) + "\n"
        file = hostfile(tmp_path, text)
        done = Command("aml-mpirun").run("--dry-run", "--hostfile", file, "x")
        if done.status != 0:
            assert real_slots(file, 1) is None, f"seed {seed}:\n{text}{done}"
            continue
        once = [name for name in names if lines.count(name) == 1 and sum(line.split()[0] == name for line in lines) == 1]
        if once:  # its number of processors, which mpirun learns on the host
            continue
        told = per_host(options("mpirun", "--hostfile", file))
        assert real_slots(file, sum(told.values())) == told, f"seed {seed}:\n{text}"
        taken += 1
    assert taken > 0, f"seed {seed}"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_localhost_outside_an_allocation_is_one_node_of_any_name(tmp_path, name):
    file = hostfile(tmp_path, f"{name} slots=4\n")
    for tool, flags in (("mpirun", ["--hostfile", file]), ("mpirun", ["-host", f"{name}:4"]), ("horovodrun", ["-np", "4", "-H", f"{name}:4"]),
                        ("horovodrun", ["-np", "4", "--hostfile", file]), ("deepspeed", ["--hostfile", file]),
                        ("deepspeed", ["--include", f"{name}:0,1,2,3"])):
        told = options(tool, *flags)
        assert told["nodes"] == "1" and told["ntasks"] == "4" and "nodelist" not in told, (tool, flags, told)
    assert "localhost' beside other hosts is this machine" in Command("aml-mpirun").refusal(NOT_FOUND, "-host", "localhost,n2", "x")


@pytest.mark.parametrize("line", ["-host localhost:2 -n 1 x : -n 3 x", "-n 3 x : -host localhost:3 -n 1 x", "-n 1 x : -host n1 -n 1 x"])
def test_hosts_of_some_programs_only_are_refused(line):
    assert "name them for all, or for none" in Command("aml-mpirun").refusal(USAGE, "--dry-run", *line.split())


@pytest.mark.parametrize("name, node", [
    ("localhost", "n2"), ("127.0.0.1", "n2"), ("n1.cluster.example", "n1"), ("n3", "n3"), ("10.0.0.1", "n1"),
])
def test_in_an_allocation_names_become_those_of_its_nodes(slurm, tmp_path, name, node):
    slurm.program("sinfo", SINFO)
    env = {**slurm.env, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURMD_NODENAME": "n2"}
    file = hostfile(tmp_path, f"{name} slots=2\n")
    for tool, flags in (("mpirun", ["--hostfile", file]), ("mpirun", ["-host", f"{name}:2"]), ("horovodrun", ["-np", "2", "-H", f"{name}:2"]),
                        ("deepspeed", ["--hostfile", file])):
        assert options(tool, *flags, env=env)["nodelist"] == node


def test_two_names_of_one_node_have_the_slots_of_both(slurm):
    slurm.program("sinfo", SINFO)
    told = options("mpirun", "-host", "n1:2,n1.cluster.example:1,n2:3", env=slurm.env)
    assert per_host(told) == {"n1": 3, "n2": 3}


@pytest.mark.parametrize("name, said", [
    ("n9.cluster.example", "'n9.cluster.example' is the name of no node of the cluster: write the node's name, such as n1"),
    ("10.0.0.9", "'10.0.0.9' is the address of no node of the cluster"),
])
def test_a_name_that_leads_nowhere_is_told_with_file_and_line(slurm, tmp_path, name, said):
    slurm.program("sinfo", SINFO)
    file = hostfile(tmp_path, f"n1 slots=1\n{name} slots=1\n")
    assert f"{file}:2: {said}" in Command("aml-mpirun").refusal(NOT_FOUND, "--hostfile", file, "x", env=slurm.env)
    assert "nodelist" in options("mpirun", "--hostfile", file, env={"PATH": "/nowhere"})  # without Slurm nothing is known


@pytest.mark.parametrize("tool, words", [
    ("mpirun", ["-host", "n1.a.b,10.0.0.2", "x", ":", "-host", "n2.a.b", "x", ":", "-host", "n3.a.b", "x"]),
    ("mpirun", ["--mpi", "mpich", "-hosts", "n1.a.b,n2.a.b:2,10.0.0.1", "-n", "4", "x"]),
    ("deepspeed", ["--include", "n1.a.b:0@n2.a.b:0@10.0.0.1:1", "--num_gpus", "2", "t.py"]),
    ("deepspeed", ["--hostfile", "FILE", "--include", "n1.a.b@n2.a.b", "t.py"]),
    ("horovodrun", ["-np", "2", "-H", "n1.a.b:1,n2.a.b:1", "x"]),
])
def test_slurm_is_asked_once_for_all_names_of_a_line(slurm, tmp_path, tool, words):
    slurm.program("sinfo", f"echo asked >>asked; {SINFO}")
    file = hostfile(tmp_path, "n1.a.b slots=2\nn2.a.b slots=2\n")
    Command(f"aml-{tool}").good("--dry-run", *[file if word == "FILE" else word for word in words], env=slurm.env)
    assert slurm.written("asked") == "asked\n"


def test_a_slurmctld_that_does_not_answer_is_waited_for_once_and_not_for_ever(slurm):
    """Then names are taken as they are written."""
    slurm.program("sinfo", "echo asked >>asked; exec sleep 300")
    told = options("mpirun", "-host", "n1.a.b:1,n2.a.b:1", "x", ":", "-host", "n3.a.b", "-n", "1", env=slurm.env)
    assert told["nodelist"] == "n1.a.b,n2.a.b,n3.a.b" and slurm.written("asked") == "asked\n"


# ------------------------------------------------------------------------------------------------------------------- bad input

READERS = {  # the flags of each, and how a line names a host with slots
    "mpirun": (["--hostfile"], "{} slots={}"), "deepspeed": (["--hostfile"], "{} slots={}"),
    "horovodrun": (["-np", "2", "--hostfile"], "{} slots={}"), "mpich": (["--mpi", "mpich", "-f"], "{}:{}"),
}
BAD_HOSTS = {  # the file's text, how the refusal ends; None: it is taken as hosts a and b
    "CR, BOM and comments": ("\ufeff# c\r\n\r\n{a}\r\n{b} # too\r\n", None),
    "IPv6": ("{a}\n{six}\n", r"hosts:2: '(fe80)?:.*' is not a (host name|number of slots: use 1 to 65536)"),
    "a range of thousands": ("{a}\n{range}\n", r"hosts:2: 'n\[1-5000\](:1)?' is not a host name"),
    "a name of 255 bytes": ("{a}\n{long}\n", r"hosts:2: 'x{40}\.\.\.' is not a host name"),
    "a control character": ("{a}\n{bell}\n", r"hosts:2: 'n\\x07(:1)?' is not a host name"),
}


@pytest.mark.parametrize("bad", BAD_HOSTS)
@pytest.mark.parametrize("reader", READERS)
def test_each_reader_answers_a_bad_host_file(tmp_path, reader, bad):
    flags, line = READERS[reader]
    tool = "mpirun" if reader == "mpich" else reader
    text, refusal = BAD_HOSTS[bad]
    names = {"a": "a", "b": "b", "six": "fe80::1", "range": "n[1-5000]", "long": "x" * 255, "bell": "n\x07"}
    file = hostfile(tmp_path, text.format(**{key: line.format(name, 1) for key, name in names.items()}))
    if refusal is None:
        assert per_host(options(tool, *flags, file)) == {"a": 1, "b": 1}
    else:
        said = Command(f"aml-{tool}").refusal(USAGE, "--dry-run", *flags, file, "x")
        assert re.search(f"(?:{refusal})$", said), said


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_takes_or_refuses_100_000_lines_within_seconds(tmp_path, reader):
    """A megabyte is read at most. Repeated lines are slots of one host, or refused as the second of a host."""
    flags, line = READERS[reader]
    tool = "mpirun" if reader == "mpich" else reader
    for number, taken in ((30_000, True), (100_000, None)):
        file = hostfile(tmp_path, "".join(line.format(f"n{i}", 1) + "\n" for i in range(number)))
        done = Command(f"aml-{tool}").run("--dry-run", *flags, file, "x", timeout=30)
        assert done.status == 0 if taken else done.status == 0 or "the most that is read" in done.said, done.said[:400]
