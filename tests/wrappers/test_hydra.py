"""aml-mpirun with the command lines of MPICH and Intel MPI, held against the real mpiexec.hydra: which host each rank gets."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess

import pytest
from conftest import USAGE, Command
from flag_tables import real_flags

# Debian's mpich; others (PyPI's mpich 5.0, Intel MPI) by their paths.
REAL = {"mpich": os.environ.get("AMLDIST_MPICH_HYDRA") or shutil.which("mpiexec.hydra"),
        "intel": os.environ.get("AMLDIST_INTEL_HYDRA")}
RUNS = int(os.environ.get("AMLDIST_SOAK_HYDRA", "40"))


def srun(*words: str, **run) -> str:
    return Command("aml-mpirun").good("--dry-run", *words, "x", **run).text


def ranks_of(line: str) -> list[str]:
    """The host of each rank, as Slurm places them for the options of a line."""
    told = dict(re.findall(r"--([a-z-]+)=(\S+)", line))
    hosts = told["nodelist"].split(",")
    if told.get("distribution") == "arbitrary":
        assert len(hosts) == int(told["ntasks"])
        return hosts
    assert int(told["nodes"]) == len(hosts)
    return [host for host in hosts for _ in range(int(told["ntasks-per-node"]))]


def real_ranks(program: str, folder, words: list[str]) -> list[str] | None:
    """The same of the real one, whose ssh is a script that starts everything here. None: it refuses the line."""
    ssh = folder / "ssh"
    ssh.write_text('#!/bin/sh\nwhile :; do case $1 in -*) shift;; *) break;; esac; done\n'
                   'FAKEHOST=$1; export FAKEHOST; shift; exec sh -c "$*"\n')
    ssh.chmod(0o755)
    done = subprocess.run([program, "-launcher", "ssh", "-launcher-exec", str(ssh), *words, "sh", "-c", "echo $PMI_RANK:$FAKEHOST"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "I_MPI_ROOT": os.path.dirname(os.path.dirname(program))})
    found = sorted((int(rank), host) for rank, host in re.findall(r"^(\d+):(\w+)(?::\d+)?$", done.stdout, re.M))
    return [host for _, host in found] if done.returncode == 0 and found else None


def random_line(source: random.Random, folder, family: str) -> list[str]:
    hosts = [f"n{i}" for i in range(1, source.randint(2, 5))]
    words = []
    named = source.choice(["-hosts", "-f", "-machinefile"])
    counts = family == "mpich" or named == "-machinefile"  # elsewhere Intel MPI reads "a" and "a:2" as two hosts
    entries = [source.choice(hosts) + (source.choice(["", "", f":{source.randint(1, 3)}"]) if counts else "")
               for _ in range(source.randint(1, 5))]
    if named == "-hosts":
        words += [named, ",".join(entries)]
    else:
        (folder / "hosts").write_text("# ours\n" + "\n".join(entries) + "\n")
        words += [named, str(folder / "hosts")]
    if source.random() < 0.5 or (family == "intel" and named != "-machinefile"):
        words += ["-ppn", str(source.randint(1, 3))]
    if source.random() < 0.8:
        words += ["-n", str(source.randint(1, 12))]
    return words


@pytest.mark.parametrize("family", REAL)
def test_random_lines_place_ranks_as_the_real_one_does(tmp_path, family):
    if not REAL[family]:
        pytest.skip(f"no mpiexec.hydra of {family} (Debian: mpich; AMLDIST_INTEL_HYDRA names Intel MPI's)")
    seed = int(os.environ.get("AMLDIST_SOAK_SEED", random.randrange(1 << 30)))
    source = random.Random(seed)
    for number in range(RUNS):
        words = random_line(source, tmp_path, family)
        # The real one fails now and then on a machine that is busy: what it refuses it refuses again.
        real = next((ranks for _ in range(3) if (ranks := real_ranks(REAL[family], tmp_path, words))), None)
        done = Command("aml-mpirun").run("--dry-run", "--mpi", family, *words, "x")
        told = ranks_of(done.text) if done.status == 0 else None
        file = (tmp_path / "hosts").read_text() if "-hosts" not in words else ""
        assert told == real, f"seed {seed}, line {number}: {words}\n{file}\n{done}"


def test_a_flag_that_only_one_family_has_decides(tmp_path):
    for words, mpi in [(["-n", "2", "-ppn", "1"], "pmi2"), (["-np", "2", "-x", "A=1"], "pmix"), (["-n", "2"], "pmix"),
                       (["-genv", "A", "1", "-n", "2"], "pmi2"), (["-perhost", "2", "-n", "2"], "pmi2"), (["--mpi", "mpich", "-n", "2"], "pmi2"),
                       (["--mpi=openmpi", "-n", "2"], "pmix"), (["-n", "2", "--mca", "btl", "tcp"], "pmix")]:
        assert f"--mpi={mpi}" in srun(*words), words


@pytest.mark.parametrize("line, words", [
    ("-genv A=1 --genv B 2 -n 2", ["A=1 B=2 srun", "--ntasks=2"]),
    ("-n 2 -ppn 1 -l -wdir /tmp", ["--label", "--chdir=/tmp", "--ntasks-per-node=1", "--nodes=2"]),
    ("-n 6 -ppn 3", ["--ntasks=6", "--nodes=2", "--ntasks-per-node=3"]),
    ("-n 2 -outfile-pattern out.%r -errfile-pattern err.%h", ["--output=out.%t", "--error=err.%N"]),
    ("-n 2 -bind-to core:2 -envall", ["--cpus-per-task=2", "--cpu-bind=cores", "-envall is ignored: srun passes on"]),
    ("-n 2 -genvall -iface ib0", ["-iface is ignored"]),
    ("-rr -n 2 -hosts a,b -s all", ["--ntasks-per-node=1", "--input=all", "--nodelist=a,b"]),
    ("-n 2 -genv I_MPI_DEBUG 5 -tune /t/x.dat -genvexcl A,B", ["I_MPI_TUNING_BIN=/t/x.dat", "env -u A -u B"]),
    ("-n 2 -disable-auto-cleanup", ["--kill-on-bad-exit=0"]),
    ("-ppn 2 -hosts localhost -n 3", ["--nodes=1", "--ntasks=3"]),
    ("-n 2 -gpus-per-proc 1", ["--gpus-per-task=1"]),
])
def test_hydras_flags(line, words):
    done = Command("aml-mpirun").good("--dry-run", *line.split(), "./a")
    for each in words:
        assert each in done.text + done.said, done


@pytest.mark.parametrize("line, words", [
    ("-genv A 1 -print-rank-map -n 2", ["-print-rank-map is ignored", "--mpi=pmi2"]),  # Intel MPI's, behind one of both
    ("-ppn 1 -n 2 -prepend-timestamp", ["-prepend-timestamp is ignored"]),
    ("-bootstrap ssh -n 2 -rr", ["-bootstrap is ignored", "--ntasks-per-node=1"]),
    ("--mpi mvapich -n 2", ["--mpi=pmi2", "--ntasks=2"]),
    ("-rsh -np 4 n1 n1 n2 n2", ["--nodelist=n1,n2", "--ntasks-per-node=2"]),
    ("-ssh -np 3 n1 n2 n1 MV2_A=1 B=2", ["MV2_A=1 B=2 srun", "--nodelist=n1,n2,n1", "--distribution=arbitrary"]),
    ("-np 2 MV2_ENABLE_AFFINITY=0", ["MV2_ENABLE_AFFINITY=0 srun", "--mpi=pmi2"]),
    ("-export-all -np 2 MVP_A=1", ["MVP_A=1 srun", "-export-all is ignored"]),
    ("-n 2 A=1", ["--mpi=pmix", "--aml-dist=mpi A=1 ./a"]),  # Open MPI would start it
])
def test_the_flags_tell_whose_line_it_is(line, words):
    done = Command("aml-mpirun").good("--dry-run", *line.split(), "./a", "x=y")
    assert done.text.endswith("./a x=y\n"), done
    for each in words:
        assert each in done.text + done.said, done


@pytest.mark.parametrize("line, said", [
    ("-hosts a,b -n 2 --mca btl tcp ./a", "-hosts is a flag of MPICH and Intel MPI, and --mca one of Open MPI: give the flags of one MPI"),
    ("-x A=1 -n 2 -ppn 2 ./a", "-x is a flag of Open MPI, and -ppn one of MPICH and Intel MPI: give the flags of one MPI"),
    ("-gpus-per-proc 1 -rr -n 2 ./a", "-gpus-per-proc is a flag of MPICH, and -rr one of Intel MPI: give the flags of one MPI"),
    ("-n 2 -bind-to core:2 ./a", "--map-by slot:PE=N"), ("-ssh -np 2 n1 ./a", "'./a' in the list of hosts is not a host"),
    ("-ssh -np 2 n1 n2", "there is no program"), ("-rsh -np 1 n1 A=1", "there is no program"), ("-rsh -config c -np 1 ./a", "-config is not supported here"),
])
def test_flags_of_different_mpis_are_told_apart(line, said):
    assert said in Command("aml-mpirun").refusal(USAGE, "--dry-run", *line.split())


def test_a_file_of_mpich_under_open_mpis_flags_is_told(tmp_path):
    (tmp_path / "hosts").write_text("n1:2\nn2:2\n")
    said = Command("aml-mpirun").refusal(USAGE, "-machinefile", str(tmp_path / "hosts"), "-n", "4", "./a")
    assert said.endswith("hosts:1: 'n1:2' is not a host name: write NAME slots=N, or --mpi mpich if the file is one of MPICH")
    assert "--nodelist=n1,n2" in srun("-machinefile", str(tmp_path / "hosts"), "-n", "4", "--mpi", "mpich")


def test_each_program_has_its_own_env():
    show = "printenv A B"
    line = srun("-genv", "A", "all", "-n", "1", "-env", "B", "one", *show.split(), ":", "-n", "2", "-env", "B=two", *show.split())
    assert line.startswith("A=all srun --ntasks=3") and "env B=one printenv" in line and "env B=two printenv" in line


def test_in_a_smaller_allocation_ppn_goes_round_its_nodes():
    inside = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert ranks_of(srun("-ppn", "2", "-n", "6", env=inside)) == ["n1", "n1", "n2", "n2", "n1", "n1"]
    assert ranks_of(srun("-ppn", "2", "-n", "3", env=inside)) == ["n1", "n1", "n2"]
    assert ranks_of(srun("-ppn", "1", env=inside)) == ["n1", "n2"]


@pytest.mark.parametrize("line, said", [
    ("--mpi foo -n 2 ./a", "use openmpi, mpich, intel or mvapich"), ("-ppn 2 -n 2 -n 3 ./a", "second time"),
    ("--mpi mpich -hosts a -hosts b -n 1 ./a", "second time"), ("-ppn 2 ./a", None), ("-n 2 -envnone ./a", "--export=NONE"),
    ("--mpi intel -hosts a,b -n 4 ./a", "say how many with -ppn N"), ("-n 1 -env A 1 ./a : ./b", "each needs its number"),
    ("-hosts a: -ppn 1 ./a", "not a number of slots"), ("-n 2 -genv =1 x ./a", None), ("-n 2 -outfile-pattern o.%x ./a", "use %r"),
    ("-n 2 -ppn 0 ./a", "from 1"), ("-n 4 -ppn 3 ./a", "use a multiple of 3"), ("-ppn 1 -n 2 -bind-to board:2 ./a", "core:N"), ("-n 2 -hosts a -zzz ./a", "-zzz"),
])
def test_bad_lines_are_answered(line, said):
    sentence = Command("aml-mpirun").run("--dry-run", *line.split())
    if said is None:
        assert sentence.status in (0, USAGE), sentence
    else:
        assert sentence.status == USAGE and said in sentence.said, sentence


@pytest.mark.parametrize("text, said", [("a slots=2\n", "write NAME or NAME:N"), ("a\nb:x\n", "hosts:2: 'x' is not a number"),
                                        ("# only\n", "names no host"), ("-a\n", "is not a host name")])
def test_a_bad_machine_file_is_named_with_its_line(tmp_path, text, said):
    (tmp_path / "hosts").write_text(text)
    assert said in Command("aml-mpirun").refusal(USAGE, "-ppn", "1", "-f", str(tmp_path / "hosts"), "./a")


def test_a_machine_file_of_100_000_lines(tmp_path):
    (tmp_path / "hosts").write_text("\ufeff" + "".join(f"n{i}:1\r\n" for i in range(100_000)))
    assert "--nodes=100000" in srun("-ppn", "1", "-f", str(tmp_path / "hosts"))


@pytest.mark.parametrize("line, expected", [
    ("-n 8 --ppn 4 --depth=8 --cpu-bind depth ./a", "--cpus-per-task=8 --ntasks-per-node=4 --nodes=2 --ntasks=8 --mpi=pmi2"),
    ("-n 2 -ppn 1 --cpu-bind verbose,numa --pmi=pmix --envall ./a", "--cpu-bind=verbose,ldoms --ntasks-per-node=1 --nodes=2 --ntasks=2 --mpi=pmix"),
    ("--line-buffer --label -n 2 -ppn 1 --cpu-bind none --no-vni ./a", "--label --cpu-bind=none --ntasks-per-node=1 --nodes=2 --ntasks=2 --mpi=pmi2")])
def test_flags_of_hpes_mpiexec(line, expected):
    """PALS, on Crays: its documents show it beside Hydra's flags."""
    words = srun(*line.split()).split()
    assert [word for word in words if word.startswith("--") and not re.match("--(kill|quit|aml|export)", word)] == expected.split()


def test_mpirun_rsh_with_its_hosts_is_known_by_its_variable():
    assert ranks_of(srun("-np", "2", "n1", "n2", "MV2_CPU_MAPPING=48", "./a")) == ["n1", "n2"]
    assert srun("-np", "2", "./a", "MV2_X=1").endswith("--mpi=pmix --kill-on-bad-exit=1 --quit-on-interrupt --aml-dist=mpi ./a MV2_X=1 x\n")


OWN = ("--dry-run", "--slurm", "--list-flags", "--json")


def table(family: str) -> list[dict]:
    rows = json.loads(Command("aml-mpirun").good("--mpi", family, "--list-flags", "--json").out)
    return [row for row in rows if row["names"][0] not in OWN]


@pytest.mark.parametrize("family, name", [("mpich", "hydra-mpich-4.0"), ("mpich", "hydra-mpich-5.0"), ("intel", "hydra-intel-2021.18")])
def test_every_flag_of_hydra_is_accounted_for(family, name):
    rows = {spelling: row for row in table(family) for spelling in row["names"]}
    for values, spellings in real_flags(name):
        for spelling in spellings:
            assert spelling in rows, f"{spelling} of {name} is not in the table"
            assert rows[spelling]["values"] == values or rows[spelling]["handling"] == "refused", (spelling, rows[spelling])
