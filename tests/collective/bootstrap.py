"""A world that cannot be built reports the reason in one sentence and ends.

    bootstrap.py --program PROGRAM

One process for each environment: a rank of two whose peer never connects, or that cannot find it. Exit status: 0 if all
reported the expected error, else 1.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

RANK = {"RANK": "0", "WORLD_SIZE": "2"}
AT_MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "23456"}
NOWHERE = "nothing says where rank 0 is: set MASTER_ADDR and MASTER_PORT, or start the step with srun --aml-dist=KIND or --mpi=pmix"


def cases(broken: str) -> list[tuple[dict[str, str], str]]:
    """Environment, and the error of amldist_init (a pattern). `broken`: a folder with a file libpmix that is not a library."""
    return [
        (RANK, NOWHERE),
        (RANK | {"PMIX_NAMESPACE": "lost", "LD_LIBRARY_PATH": broken},
         NOWHERE + "; PMIx: (libpmix cannot be loaded: .*libpmix.so.2.*|this library was built without PMIx.*)"),
        (RANK | {"PMIX_NAMESPACE": "lost"}, NOWHERE + "; PMIx: .+"),
        (RANK | {"AMLDIST_BOOTSTRAP": "pmix"}, "PMIx_Init failed: .+: start the step with srun --mpi=pmix"
                                               "|this library was built without PMIx.*"),
        (RANK | {"AMLDIST_BOOTSTRAP": "pmix", "LD_LIBRARY_PATH": broken},
         "libpmix cannot be loaded: .*libpmix.so.2.*|this library was built without PMIx.*"),
        (RANK | {"AMLDIST_BOOTSTRAP": "carrier pigeon"}, "AMLDIST_BOOTSTRAP='carrier pigeon': use tcp, pmix, slurm or mpi"),
        (RANK | {"AMLDIST_ISA": "sse"}, "AMLDIST_ISA='sse': use plain, avx2 or avx512"),
        (RANK | {"AMLDIST_RDMA": "on"}, "AMLDIST_RDMA='on': use require, prefer or off"),
        (RANK | {"AMLDIST_TIMEOUT_MS": "5s"}, "AMLDIST_TIMEOUT_MS='5s': use a number of milliseconds from 1 to 2147483647"),
        (RANK | {"AMLDIST_BOOTSTRAP": "slurm"}, "this is no step of srun"),
        (RANK | {"AMLDIST_BOOTSTRAP": "tcp"}, "MASTER_ADDR and MASTER_PORT are not both set"),
        (RANK | {"MASTER_ADDR": "127.0.0.1"}, "MASTER_ADDR and MASTER_PORT are not both set"),
        *((RANK | AT_MASTER | {"MASTER_PORT": port}, f"MASTER_PORT='{re.escape(port)}' is no port")
          for port in ("0", "-1", "65536", "99999999999999999999", "29500x", " ")),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "no.such.host.invalid", "MASTER_PORT": "23456"},
         r"rank 0 is missing in amldist_init: .*no\.such\.host\.invalid.*"),
        ({"RANK": "2", "WORLD_SIZE": "2"} | AT_MASTER, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"} | AT_MASTER, "RANK=0 is not below WORLD_SIZE=0"),
        ({"RANK": "-1", "WORLD_SIZE": "2"} | AT_MASTER, "RANK='-1' is not a number"),
        ({"RANK": "0", "WORLD_SIZE": "99999999999999999999"} | AT_MASTER, "WORLD_SIZE='9+' is out of range .at most 67108864."),
        ({"RANK": "0"} | AT_MASTER, "RANK is set but WORLD_SIZE is not"),
        (RANK | AT_MASTER | {"PMIX_RANK": "1"}, "RANK=0 but PMIX_RANK=1: unset the wrong one"),
        (RANK | AT_MASTER | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
         "RANK=0 but OMPI_COMM_WORLD_RANK=1: unset the wrong one"),
    ]


def complaint(program: str, environment: dict[str, str], pattern: str) -> str | None:
    """What is wrong with the answer; None: nothing. The program's own deadline is 30 s."""
    # An address sanitizer would report what libpmix itself leaks when it finds no server.
    done = subprocess.run([program, "place"], env=environment | {"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True,
                          text=True, timeout=60)
    said = [line.removeprefix("amldist_init: ") for line in done.stderr.splitlines() if line.startswith("amldist_init: ")]
    if done.returncode == 3 and len(said) == 1 and re.fullmatch(pattern, said[0]):
        return None
    return f"{environment}\n  wanted: {pattern}\n  status {done.returncode}, said: {done.stderr.strip()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as broken:
        (pathlib.Path(broken) / "libpmix.so.2").write_text("no library")
        table = cases(broken)
        wrong = [each for each in (complaint(program, environment, pattern) for environment, pattern in table) if each]
    print("\n".join([*wrong, f"{len(table)} environments, {len(wrong)} with an unexpected answer"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
