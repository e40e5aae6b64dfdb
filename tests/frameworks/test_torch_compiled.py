"""The compiled calls of PyTorch's back end: the same results as without them, and ranks with and without them agree."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess

import pytest
from conftest import ROOT, VENV

LIBRARY = pathlib.Path(os.environ.get("AMLDIST_LIBRARY", ROOT / "build-development/lib/libamldist.so"))
PROGRAM = pathlib.Path(__file__).with_name("torch_compiled_ranks.py")


def run(package: pathlib.Path, ways: list[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI", "AMLDIST_"))}
    environment |= {"PYTHONPATH": str(package), "AMLDIST_LIBRARY": str(LIBRARY), "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(ways))}
    ranks = []
    for rank, way in enumerate(ways):
        own = {"RANK": str(rank)} | ({} if way == "compiled" else {"AMLDIST_TORCH_COMPILED": "0"})
        ranks.append(subprocess.Popen([VENV / "bin/python", PROGRAM, way], env=environment | own, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    for rank in ranks:
        out, err = rank.communicate(timeout=180)
        assert rank.returncode == 0 and out == "done\n", err


@pytest.mark.parametrize("ways", [["compiled", "compiled"], ["compiled", "python", "compiled"], ["python", "python"]])
def test_compiled_calls_do_what_the_others_do(package, ways):
    run(package, ways)


def test_there_is_nothing_to_build_for_a_release_of_pytorch(package):
    """`python -m amldist.torch` says which way calls go; without a fitting PyTorch it says so in a sentence."""
    def said(python: object, *arguments: str, **more: str) -> subprocess.CompletedProcess:
        return subprocess.run([python, "-m", "amldist.torch", *arguments], capture_output=True, text=True, check=False, timeout=120,
                              env=os.environ | {"PYTHONPATH": str(package), "AMLDIST_LIBRARY": str(LIBRARY)} | more)

    done = said(VENV / "bin/python", "build")
    way = "through Python: PyTorch 2.6" if "\nPyTorch      2.6" in done.stdout else "compiled\n"
    assert done.returncode == 0 and "nothing to build" in done.stdout and f"\ncalls        {way}" in done.stdout, done
    assert "AMLDIST_TORCH_COMPILED=0" in said(VENV / "bin/python", AMLDIST_TORCH_COMPILED="0").stdout
    assert said(VENV / "bin/python", "bild").returncode == 2
    (package / "torch.py").write_text("raise ModuleNotFoundError('none', name='torch')")
    none = said(VENV / "bin/python", "build")
    (package / "torch.py").unlink()
    assert none.returncode == 1 and none.stderr == "amldist: this Python has no PyTorch (pip install torch)\n", none
