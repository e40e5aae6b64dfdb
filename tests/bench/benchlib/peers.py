"""Programs in C that are compiled once for aml-dist and once for each MPI (-DWITH_MPI), and how each is started."""

import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass, field, replace

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEVCLUSTER = str(ROOT / "contrib/devcluster/devcluster")
OWN = "aml-dist"

# So that each launcher starts more ranks than processors, as root, over shared memory.
LAUNCHERS = {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
             "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


@dataclass(frozen=True)
class Program:
    """A compiled program; `launcher` takes the number of ranks in place of RANKS, or behind -n."""

    file: pathlib.Path
    launcher: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)

    def command(self, ranks: int, *arguments: str) -> list[str]:
        words = {"RANKS": str(ranks), "-nRANKS": f"-n{ranks}"}
        return [*(words.get(word, word) for word in self.launcher), str(self.file), *arguments]

    def behind(self, wrap: str) -> "Program":
        """The same, with these words in front of it."""
        return replace(self, launcher=(*self.launcher, *wrap.split()))

    def on_nodes(self, cluster: str, nodes: int) -> "Program":
        """The same on nodes of a cluster of contrib/devcluster, started by srun."""
        settings = {"SLURM_MPI_TYPE": "pmix", "OMPI_MCA_mpi_yield_when_idle": "1"} | self.settings
        inside = ("env", *(f"{name}={value}" for name, value in settings.items()), "srun", f"-N{nodes}", "-nRANKS", "--overcommit")
        return replace(self, launcher=(DEVCLUSTER, "run", "--name", cluster, "--", *inside), settings={})

    def lines(self, ranks: int, *arguments: str, seconds: int = 100) -> list[list[str]] | None:
        """The words of each line that rank 0 printed; None if it took too long, which is said. Another failure ends
        the benchmark."""
        command = self.command(ranks, *arguments)
        try:
            done = subprocess.run(command, env=os.environ | self.settings, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            print(f"{' '.join(command)}: not done in {seconds} s, left out of this round", file=sys.stderr)
            return None
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return [line.removeprefix("0: ").split() for line in done.stdout.splitlines()]


def compile_program(source: pathlib.Path, output: pathlib.Path, *flags: str, compiler: str = "cc") -> None:
    subprocess.run([compiler, "-O3", "-march=native", str(source), "-o", str(output), *flags], check=True)


def own(source: pathlib.Path, build: str, folder: pathlib.Path) -> Program:
    build = pathlib.Path(build).resolve()
    compile_program(source, folder / "own", f"-I{ROOT}/libdist/api/include", f"-L{build}/lib", "-lamldist", f"-Wl,-rpath,{build}/lib")
    return Program(folder / "own", (sys.executable, str(ROOT / "tests/collective/launch.py"), "--ranks", "RANKS", "--"))


def peer(source: pathlib.Path, description: str, folder: pathlib.Path) -> tuple[str, Program]:
    """From NAME=PREFIX[,VARIABLE=VALUE]..."""
    name, prefix = description.split("=", 1)
    prefix, *variables = prefix.split(",")
    own = dict(variable.split("=", 1) for variable in variables)
    file = folder / name
    if prefix == "system":
        compile_program(source, file, "-DWITH_MPI", compiler="mpicc")
        return name, Program(file, ("mpiexec", "-n", "RANKS"), LAUNCHERS | own)
    compile_program(source, file, "-DWITH_MPI", f"-I{prefix}/include", f"-L{prefix}/lib", "-lmpi", f"-Wl,-rpath,{prefix}/lib",
                    f"-Wl,-rpath-link,{prefix}/lib:{prefix}/lib/libfabric")
    paths = {"LD_LIBRARY_PATH": f"{prefix}/lib:{prefix}/lib/libfabric", "I_MPI_ROOT": prefix,
             "FI_PROVIDER_PATH": f"{prefix}/lib/libfabric/prov"}
    return name, Program(file, (f"{prefix}/bin/mpiexec", "-n", "RANKS"), LAUNCHERS | paths | own)
