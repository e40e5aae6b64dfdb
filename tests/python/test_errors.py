"""amldist_errors: what a rank leaves of the exception that ends it, for the line that srun prints."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest
from conftest import LIBRARY, PACKAGE

STEP = "990000017.0"
FOLDER = pathlib.Path(f"/dev/shm/aml-dist-{os.geteuid()}")
IN_STEP = {"AMLDIST_STAMP": f"{STEP} kind=pytorch nodes=1", "SLURM_PROCID": "3"}


@pytest.fixture
def left():
    shutil.rmtree(FOLDER / STEP, ignore_errors=True)
    yield FOLDER / STEP / "3.error"
    shutil.rmtree(FOLDER / STEP, ignore_errors=True)


def run(program: str, env=IN_STEP, *, install="import amldist_errors; amldist_errors.install()", file=None) -> subprocess.CompletedProcess:
    if file:
        file.write_text(f"{install}\n{program}\n")
    arguments = [str(file)] if file else ["-c", f"{install}\n{program}"]
    return subprocess.run([sys.executable, *arguments], env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE), **env}, capture_output=True,
                          text=True, timeout=60, check=False)


def fields(left: pathlib.Path) -> list[str]:
    lines = left.read_text().splitlines()
    assert lines[0] == "amldist-error 1" and lines[1].isdigit() and len(lines) == 7, lines
    return lines[2:]


def test_type_text_and_place_are_left_and_the_traceback_is_printed(left, tmp_path):
    program = "def forward():\n    raise RuntimeError('shape mismatch')\nforward()"
    done = run(program, file=tmp_path / "train.py")
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: shape mismatch\n"), done
    assert fields(left) == ["RuntimeError", "shape mismatch", str(tmp_path / "train.py"), "3", "forward"]
    assert stat.S_IMODE(left.stat().st_mode) == 0o600 and list(left.parent.iterdir()) == [left]


def test_the_place_is_in_the_users_program_and_not_in_a_library(left, tmp_path):
    run("import json\ndef load():\n    json.loads('{')\nload()", file=tmp_path / "train.py")
    kind, _, file, line, function = fields(left)
    assert (kind, pathlib.Path(file).name, line, function) == ("json.decoder.JSONDecodeError", "train.py", "4", "load")


@pytest.mark.parametrize("env", [{}, {"AMLDIST_STAMP": IN_STEP["AMLDIST_STAMP"]}, {"SLURM_PROCID": "3"},
                                 IN_STEP | {"AMLDIST_STAMP": "../../x kind"}, IN_STEP | {"AMLDIST_STAMP": ""}, IN_STEP | {"SLURM_PROCID": "x"}])
def test_nothing_outside_a_step(left, env):
    done = run("raise RuntimeError('x')", env)
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: x\n") and not left.exists()


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "raise KeyboardInterrupt", "pass", "try:\n    1/0\nexcept ZeroDivisionError:\n    pass"])
def test_what_is_no_failure_leaves_nothing(left, program):
    run(program)
    assert not left.exists()


def test_a_thread_leaves_its_own_and_the_first_counts(left):
    run("import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()")
    assert fields(left.with_name("3.error.thread"))[:2] == ["ZeroDivisionError", "division by zero"] and not left.exists()
    run("raise ValueError('first')")
    run("raise ValueError('second')")
    assert fields(left)[1] == "first"


@pytest.mark.parametrize("text", ["'\\x1b[2J\\n\\0\\x07%s%n' + 'x' * 10_000_000", "'\\udcff\\u20ac'", "b'\\xff'"])
def test_hostile_text_is_a_line(left, text):
    run(f"raise RuntimeError({text})")
    content = left.read_bytes()
    assert len(content) < 5000 and all(c == 10 or 32 <= c < 127 for c in content) and content.count(b"\n") == 7


def test_an_exception_without_a_text_keeps_its_type(left):
    run("class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad")
    assert fields(left)[:2] == ["Bad", ""]


def test_a_hook_of_the_users_is_called_too(left):
    install = "import sys\nsys.excepthook = lambda *a: print('mine')\nimport amldist_errors; amldist_errors.install(); amldist_errors.install()"
    assert run("raise RuntimeError('x')", install=install).stdout == "mine\n" and left.exists()


def test_a_limit_on_the_address_space_is_named(left):
    run("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nx = bytearray(4 << 30)")
    assert fields(left)[:2] == ["MemoryError", " (its address space is limited to 1.0 GiB: ulimit -v)".replace("  ", " ")], fields(left)


@pytest.mark.parametrize("spoil", [lambda path: os.mkfifo(path), lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()])
def test_what_lies_in_its_place_is_left_alone(left, spoil):
    left.parent.mkdir(parents=True, mode=0o700)
    spoil(left)
    done = run("raise RuntimeError('x')")
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: x\n") and len(list(left.parent.iterdir())) == 1


def test_a_folder_that_others_may_read_is_not_used(left):
    left.parent.mkdir(parents=True, mode=0o700)
    left.parent.chmod(0o755)
    run("raise RuntimeError('x')")
    assert not left.exists()
    shutil.rmtree(f"/tmp/aml-dist-{os.geteuid()}/{STEP}", ignore_errors=True)


# ---- fatal signals, which libamldist notes ----

FAULTS = IN_STEP | {"AMLDIST_LIBRARY": str(LIBRARY)}
C = "import ctypes, json\nc = ctypes.CDLL(None)\n"
THROWER = """#include <stdexcept>
#include <thread>
extern "C" void throws() { std::thread([] { throw std::runtime_error("CUDA error\\x1b[2J: device-side assert triggered"); }).join(); }
"""


@pytest.mark.parametrize("program, said", [
    (C + "def step():\n    ctypes.string_at(0)\nstep()", ["segmentation fault", "", "train.py", "5", "step"]),
    (C + "c.__assert_fail(b'loss > 0', b'kernel.c', 12, b'backward')", ["abort", "python3: kernel.c:12: backward: Assertion `loss > 0' failed.", "train.py",
                                                                       "4", "<module>"]),
    (C + "import threading\nt = threading.Thread(target=lambda: c.abort())\nt.start(); t.join()", ["abort", "", "train.py", "5", "<lambda>"]),
    ("import faulthandler, os\nfaulthandler.enable()\nos.abort()", ["abort", "", "train.py", "4", "<module>"]),
    (C + "c.malloc.restype = ctypes.c_void_p\nroom = ctypes.c_void_p(c.malloc(500))\nc.free(room)\nc.free(room)", None),
    (C + "import os\nif os.fork() == 0: ctypes.string_at(0)\nos.wait()\nraise RuntimeError('worker')", ["segmentation fault", "", "train.py", "5", "<module>"]),
], ids=["segfault", "assert", "thread", "faulthandler", "heap", "child"])
def test_a_fatal_signal_leaves_its_words_and_its_place(left, tmp_path, program, said):
    done = run(program, FAULTS, file=tmp_path / "train.py")
    assert done.returncode in (-6, -11, 1), done
    found = fields(left)
    assert "faulthandler" not in program or "Fatal Python error: Aborted" in done.stderr, "what was there is done, too: " + done.stderr
    if said is None:
        assert found[0] == "abort" and "double free" in found[1], found
    else:
        assert [found[0], found[1].replace(pathlib.Path(sys.executable).name, "python3"), pathlib.Path(found[2]).name, *found[3:]] == said, found


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no compiler")
def test_a_cpp_exception_that_nobody_catches(left, tmp_path):
    (tmp_path / "thrower.cpp").write_text(THROWER)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", tmp_path / "thrower.so", tmp_path / "thrower.cpp", "-pthread"], check=True)
    done = run(C + f"ctypes.CDLL('{tmp_path}/thrower.so').throws()", FAULTS, file=tmp_path / "train.py")
    assert done.returncode == -6 and "terminate called after throwing" in done.stderr, done
    assert fields(left)[:2] == ["std::runtime_error", "CUDA error?[2J: device-side assert triggered"]


@pytest.mark.parametrize("env", [{}, FAULTS | {"AMLDIST_LIBRARY": "/no/such.so"}, IN_STEP | {"AMLDIST_LIBRARY": "/dev/null"}], ids=["no step", "missing", "none"])
def test_faults_without_a_step_or_the_library_leave_nothing(left, env):
    done = run(C + "c.abort()", env)
    assert done.returncode == -6 and done.stderr == "" and not left.exists()


def test_a_signal_from_outside_leaves_nothing(left):
    run(C + "import subprocess, os, time\nsubprocess.run(['kill', '-SEGV', str(os.getpid())])\ntime.sleep(5)", FAULTS)
    assert not left.exists()


def test_the_pth_file_installs_it(left):
    line = (PACKAGE / "amldist_errors.pth").read_text()
    assert line.startswith("import ") and line.count("\n") == 1, "site runs only such lines"
    run("raise RuntimeError('x')", install=line)
    assert left.exists()


def test_a_python_outside_a_step_does_not_load_it():
    line = (PACKAGE / "amldist_errors.pth").read_text()
    assert run("import sys; print('amldist_errors' in sys.modules)", {}, install=line).stdout == "False\n"
