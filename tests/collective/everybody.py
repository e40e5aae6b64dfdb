"""Programs and scripts of these tests where another user can run them: a checkout below /root or in a private home is its owner's."""

import atexit
import pathlib
import shutil
import stat
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def is_open(file: pathlib.Path) -> bool:
    """Whether every user may read and run it."""
    folders_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in file.parents)
    return folders_open and file.stat().st_mode & 0o005 == 0o005


def library_of(program: pathlib.Path) -> pathlib.Path:
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return pathlib.Path(next(line.split()[2] for line in lines if line.split()[0].startswith("libamldist.so")))


def for_all_users(program: str) -> tuple[str, pathlib.Path]:
    """The program and the folder of the scripts here: themselves, or copies until this process ends. A program finds the
    library beside itself."""
    path = pathlib.Path(program).resolve()
    if is_open(path) and is_open(HERE):
        return program, HERE
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-open-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    for file in (path, library_of(path), *HERE.glob("*.py")):
        shutil.copy(file, folder)
    return str(folder / path.name), folder
