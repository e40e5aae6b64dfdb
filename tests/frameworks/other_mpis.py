"""The MPIs from PyPI that `tests/frameworks/install --mpis` installs: how a program is compiled for one, and started."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess


@dataclasses.dataclass(frozen=True)
class Mpi:
    """By the interface that a program is compiled for."""

    folder: str
    library: str
    pmi: str  #: Slurm's way to start it
    variables: dict[str, str]


MPIS = {
    "mpich": Mpi("mpich", "mpi", "pmi2", {}),
    "standard": Mpi("mpich", "mpi_abi", "pmi2", {}),
    "openmpi": Mpi("openmpi", "mpi", "pmix", {}),
    "impi": Mpi("impi", "mpi", "pmi2", {"I_MPI_PMI": "pmi2", "FI_PROVIDER": "tcp", "FI_PROVIDER_PATH": "{lib}"}),
}


def is_installed(name: str, frameworks: pathlib.Path) -> bool:
    mpi = MPIS[name]
    return (frameworks / "mpis" / mpi.folder / f"lib/lib{mpi.library}.so").exists()


def compile_for(name: str, frameworks: pathlib.Path, source: pathlib.Path, program: pathlib.Path, *options: str) -> None:
    mpi = MPIS[name]
    home = frameworks / "mpis" / mpi.folder
    if name == "openmpi":  # its compiler wrapper knows which libraries stand behind libmpi
        command, ending, environment = [home / "bin/mpicc"], [], os.environ | {"OPAL_PREFIX": str(home)}
    else:
        command = ["cc", f"-I{home}/include", f"-L{home}/lib", "-Wl,--allow-shlib-undefined"]
        command += ["-DMPI_ABI"] if name == "standard" else []
        ending, environment = [f"-l{mpi.library}"], None
    subprocess.run([*command, "-O1", *options, "-o", program, source, *ending], check=True, env=environment)
    program.chmod(0o755)


def variables_of(name: str, frameworks: pathlib.Path) -> str:
    """Assignments for the shell's line that starts srun."""
    mpi = MPIS[name]
    library = frameworks / "mpis" / mpi.folder / "lib"
    words = {"LD_LIBRARY_PATH": str(library)} | {key: value.format(lib=library) for key, value in mpi.variables.items()}
    return " ".join(f"{key}={value}" for key, value in words.items())
