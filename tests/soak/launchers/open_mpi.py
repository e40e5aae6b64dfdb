"""mpirun of Open MPI: each line is run, by the real mpirun on this machine and as our srun line would start it. A program
that writes down its rank, folder, arguments and variables shows whether both mean the same."""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile

from lines import BY_NAME, DIFFERS, MACHINE_REFUSES, HERE_ONLY, REFUSED, ROOT, SAME, Flag, Ours, ask, random_words, verdict

PROBE = """#!/bin/sh
printf '%s\\n' "in $PWD" "A=$A" "B=$B" "M=$OMPI_MCA_btl_base_verbose" "$@" >"$1/${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}"
"""

# Flags that end mpirun, wait for somebody, or speak to another program: a run of them says nothing.
NOT_RUN = {"-h", "--help", "-V", "--version", "--dvm", "--hnp", "--ompi-server", "--singleton", "--system-server", "--xterm", "--tv",
           "--debug", "--debugger", "--stop-on-exec", "--stop-in-init", "--stop-in-app", "--do-not-launch", "--test-suicide",
           "--keepalive", "--report-uri", "--launch-agent", "--prefix", "--tmpdir", "--pset", "--xml-file", "-xterm", "-debug",
           "--report-pid", "--app", "--file", "--tune", "--am", "--amca", "--set-sid", "--get-stack-traces"}

# What this machine has too few cores for is tried again on a topology that is made up: 32 cores, to which nothing is bound.
SMALL = re.compile("not enough slots|already filled|more cpus than are available|more processes than the ppr|not have enough|too few|topology")
MACHINE = re.compile(SMALL.pattern.partition("filled|")[2])
CORES = "pack:2 core:16 pu:1"
# (The deprecated --bind-to-core contradicts the policy that start() sets.)
BINDS = re.compile("hwloc_base_bind_to_core|support binding|binding more|tried to bind|cannot be bound|Unable to bind|not support memory binding")
# How many sockets and cores a node has Slurm knows when it starts the step; a line does not say it.
OF_A_NODE = re.compile("socket|package|numa|cache|core|hwthread|cpus-per|PE=")

# 5.0.11 takes NAME=VALUE of some flags and not of others (--wdir=/x, but not --bind-to=core), no flag twice, not all
# that its PRRTE lists, and needs -n of each of several programs (it ends with 251 and no word). It crashes on some lines
# (-s with a hostfile). 4.1 takes no prefixes, no NAME=VALUE, no packages for sockets, and -s of no absolute path.
HERE = re.compile("unrecognized option|listed more than once|too many directives|unknown option|does not match the expected format|"
                  "policy is not recognized|Executable: ./probe|orte_init failed|Could not resolve hostname|^status 251: (=|$)|rankby directive is not recognized|^status -11: $|PMIX ERROR")
HOSTS = re.compile("-host|-H |file")

GOOD = {
    "-n": ["1", "2", "3"], "-N": ["1", "2"], "--npernode": ["2"], "--npersocket": ["1"], "--ppr": ["2:node"],
    "--map-by": ["node", "slot", "core", "socket", "package", "numa", "hwthread", "ppr:2:node", "slot:PE=1", "node:OVERSUBSCRIBE",
                 "core:NOOVERSUBSCRIBE", ":OVERSUBSCRIBE", "l3cache", "seq", "ppr:1:core", "nonsense"],
    "--rank-by": ["slot", "node", "span", "fill", "core", "nonsense"],
    "--bind-to": ["none", "core", "socket", "package", "numa", "hwthread", "board", "core:overload-allowed", "nonsense"],
    "-x": ["A=1", "A=b c", "B=x=y", "A=", "HOME", "B"], "--set-env": ["A=1", "B=x y"], "--unset-env": ["B", "A"],
    "--append-env": ["A x"], "--prepend-env": ["A x"], "--wdir": ["/usr", "/"], "--wd": ["/usr"], "--path": ["/bin"],
    "--mca": ["btl_base_verbose 0", "btl self,sm", "plm_base_verbose 0"], "--prtemca": ["plm_base_verbose 0"],
    "--pmixmca": ["ptl_base_verbose 0"], "--gpmixmca": ["ptl_base_verbose 0"], "--host": ["localhost:4", "localhost", "localhost:2"],
    "--timeout": ["60", "120"], "--spawn-timeout": ["60"], "--stdin": ["0", "all", "none", "1"], "--output": ["tag", "tag,rank"],
    "--stream-buffering": ["1"], "--display": ["map", "allocation"], "--personality": ["ompi"], "--cpus-per-proc": ["1"],
    "--cpus-per-rank": ["1"], "--output-filename": ["{folder}/out"], "--output-directory": ["{folder}/out"],
    "--hostfile": ["{hosts}"], "--machinefile": ["{hosts}"], "--default-hostfile": ["{hosts}"], "--max-restarts": ["1"],
    "--max-vm-size": ["1"], "--forward-signals": ["SIGUSR1"], "--initial-errhandler": ["mpi_errors_return"],
    "--memory-alloc-kinds": ["mpi"], "--runtime-options": ["show-progress"], "--with-ft": ["ulfm", "none"], "--rankfile": ["{hosts}"],
    "--cpu-set": ["0,1"], "--cpu-list": ["0,1"], "--pmix-prefix": ["/usr"], "--app-pmix-prefix": ["/usr"],
    "--preload-files": ["/etc/hostname"], "--arch": ["x86_64"], "--add-host": ["localhost"], "--add-hostfile": ["{hosts}"],
    "--display-topo": ["localhost"],
}


class Mpirun:
    workers = 6  # a start mostly waits
    hosts = ["localhost:8"] * 6 + ["localhost:3", "localhost", "localhost,localhost", "localhost:2,localhost:2"]

    def __init__(self, paths: list[str], programs: int) -> None:
        self.programs = programs
        self.paths = paths
        releases = []
        for path in paths:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")[0]
            releases.append(re.search(r"(\d+\.\d+)(\.\d+)?", said))
        self.version = f"mpirun of Open MPI {' or '.join(each[0] for each in releases)}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-mpirun-"))
        self.probe = self.folder / "probe"
        self.probe.write_text(PROBE)
        self.probe.chmod(0o755)
        (self.folder / "hosts").write_text("localhost slots=4\n")
        self.flags = []
        lists = [(ROOT / f"tests/wrappers/flags/mpirun-{each[1]}.txt").read_text().splitlines() for each in releases]
        for text in sorted({line for each in lists for line in each}):
            if text.startswith("#"):
                continue
            values, *names = text.split()
            if not set(names) & NOT_RUN:
                good = next((GOOD[name] for name in [*names, *["-" + name for name in names]] if name in GOOD), ["a", "2"])
                good = [value.format(folder=self.folder, hosts=self.folder / "hosts") for value in good]
                self.flags.append(Flag(names, int(values), good))
        self.often = [flag for flag in self.flags if set(flag.names) & set(GOOD)]

    def app(self, generator: random.Random) -> list[str]:
        flags = self.often if generator.random() < 0.7 else self.flags
        words = random_words(generator, flags, 3, 0.05, 0.05)
        for at, word in enumerate(words):  # a flag of two words was given one value twice
            if at + 1 < len(words) and word == words[at + 1] and " " in word and word.split()[0].isidentifier():
                words[at:at + 2] = word.split(" ", 1)
        start = ["--host", generator.choice(self.hosts)] if generator.random() < 0.85 else []
        start += ["-n", generator.choice("123")] if generator.random() < 0.9 else []
        return [*start, *words, str(self.probe), "@", "a", generator.choice(["b c", "$HOME", "", "'q\"", "--x", "-n", "ä"])]

    def line(self, generator: random.Random) -> list[str]:
        words = self.app(generator)
        for _ in range(min(generator.choice([0, 0, 0, 1, 2]), self.programs - 1)):
            words += [":", *self.app(generator)]
        return words

    @staticmethod
    def seen(folder: pathlib.Path) -> dict[int, list[str]]:
        return {int(file.name): file.read_text().replace(str(folder), "@").splitlines() for file in folder.iterdir() if file.name.isdigit()}

    def real(self, path: str, words: list[str], folder: pathlib.Path) -> tuple[int, str]:
        status, said = self.start(path, words, folder)
        if status == 0 or not SMALL.search(said):
            return status, said
        for file in folder.iterdir():
            file.unlink() if file.is_file() else shutil.rmtree(file)
        loose = [f"{word}:if-supported" if before.endswith("-bind-to") and ":" not in word else word
                 for before, word in zip(["", *words], words, strict=False)]
        return self.start(path, loose, folder, HWLOC_SYNTHETIC=CORES)

    def start(self, path: str, words: list[str], folder: pathlib.Path, **variables: str) -> tuple[int, str]:
        env = {"PATH": f"{pathlib.Path(path).parent}:/usr/bin:/bin", "HOME": str(self.folder), "B": "outer", "TMPDIR": str(folder),
               "PRTE_MCA_hwloc_default_binding_policy": "none",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               **variables}
        with subprocess.Popen([path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                              cwd=folder, start_new_session=True) as process:
            try:
                said = process.communicate(timeout=90)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return 1, "it did not end within 90 s"
        sentences = [text.strip() for text in said.splitlines() if text.strip(" -=\n")]
        return process.returncode, " / ".join(sentences)

    def as_tasks(self, ours: Ours, folder: pathlib.Path) -> None:
        """What srun would start, in its folder and with its variables."""
        count = int(ours.option("ntasks") or 0) or int(ours.option("nodes") or 1) * int(ours.option("ntasks-per-node") or 0)
        at = next(i for i, word in enumerate(ours.words) if word.startswith("--aml-dist=")) + 1
        if shutil.which(ours.words[at]) is None or not (folder / (ours.option("chdir") or "/")).is_dir():
            ours.status = 1  # srun would say so
            return
        for rank in range(count):
            env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "B": "outer", **ours.told["environment"], "SLURM_PROCID": str(rank)}
            done = subprocess.run(ours.words[at:], env=env, cwd=folder / (ours.option("chdir") or "."), stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=60, check=False)
            ours.status = ours.status or done.returncode  # a program that is not there

    @staticmethod
    def is_documented(words: list[str], ours: Ours, real: str) -> bool:
        if ours.status != 0:  # 4.1 takes the slots of the last program's -host for those of all programs
            return (":" in words and "do not fit" in ours.said) or "do not come out even" in ours.said  # docs/launchers.md
        has_hosts = HOSTS.search(" ".join(words))  # Slurm has more nodes than this one
        return bool(HERE.search(real) or (not has_hosts and "more processes than the ppr" in real))

    def judge(self, words: list[str]) -> tuple[str, str]:
        """aml-mpirun stands for all releases: it takes a line that one of them takes, and means what that one means."""
        with tempfile.TemporaryDirectory(prefix="line-", dir=self.folder) as name:
            here = pathlib.Path(name) / "here"
            here.mkdir()
            ours = ask("mpirun", [str(here) if word == "@" else word for word in words], B="outer")
            if ours.status == 0 and not ours.kind:
                return DIFFERS, f"no line: {ours.said} {ours.text}"
            if ours.status == 0:
                self.as_tasks(ours, here)
            outcomes = []
            for number, path in enumerate(self.paths):
                there = pathlib.Path(name) / str(number)
                there.mkdir()
                status, said = self.real(path, [str(there) if word == "@" else word for word in words], there)
                real = self.seen(there)
                if (status != 0 or not real) and (BINDS.search(said) or (MACHINE.search(said) and OF_A_NODE.search(" ".join(words)))):
                    outcomes.append((MACHINE_REFUSES, ""))
                    continue
                outcome = verdict(real if status == 0 and real else None, ours, f"status {status}: {said[:400]}")
                if outcome is None:
                    outcome = (SAME, "") if self.seen(here) == real else (DIFFERS, f"wanted {real}, got {self.seen(here)}")
                if outcome[0] == DIFFERS and self.is_documented(words, ours, f"status {status}: {said}"):
                    outcome = HERE_ONLY if ours.status == 0 else BY_NAME, ""
                if outcome[0] == SAME:
                    return outcome
                # One of them knows every flag of the line and refuses it, as we do.
                if outcome[0] == REFUSED and not HERE.search(f"status {status}: {said}"):
                    return outcome
                outcomes.append(outcome)
            for kind in (MACHINE_REFUSES, HERE_ONLY):
                if ours.status == 0 and any(each[0] == kind for each in outcomes):
                    return kind, ""
            taken_there = [each for each in outcomes if each[0] in (DIFFERS, BY_NAME) and "refused there" not in each[1]]
            return (taken_there or [each for each in outcomes if each[0] != MACHINE_REFUSES] or outcomes)[0]

    def __del__(self) -> None:
        shutil.rmtree(getattr(self, "folder", "/nonexistent"), ignore_errors=True)
