"""The files of the tree, for the checks of style."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".cpp", ".hpp", ".h", ".c", ".cu"}


def files() -> list[pathlib.Path]:
    """Tracked or new, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    return sorted({pathlib.Path(name) for name in listed if (ROOT / name).is_file()})


def code() -> list[pathlib.Path]:
    return [file for file in files() if file.suffix in CODE]
