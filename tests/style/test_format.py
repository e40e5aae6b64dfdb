"""Every file of C, C++ and CUDA is as clang-format leaves it, and none is long."""

import re
import subprocess

import pytest
import tree

RELEASE = 14  # Debian 12's: releases format differently
FOLDERS = sorted({file.parent.as_posix() for file in tree.code()})
MOST_LINES = 600


def release() -> int:
    said = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"version (\d+)", said)[1])


@pytest.mark.parametrize("folder", FOLDERS)
def test_clang_format(folder):
    if release() != RELEASE:
        pytest.skip(f"clang-format {release()} is here, and the tree is formatted by clang-format {RELEASE}")
    here = [file for file in tree.code() if file.parent.as_posix() == folder]
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *here], cwd=tree.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"clang-format -i mends this:\n{done.stderr}"


def test_no_file_is_long():
    read = [file for file in tree.files() if file.suffix in tree.CODE | {".py", ".sh", ".cmake", ".txt", ".md"} or not file.suffix]
    lengths = {file: len((tree.ROOT / file).read_bytes().splitlines()) for file in read}
    assert not {str(file): lines for file, lines in lengths.items() if lines > MOST_LINES}


MOST_IN_A_FOLDER = 30


def test_no_folder_is_full():
    folders = [file.parent.as_posix() for file in tree.code()]
    assert not {folder: folders.count(folder) for folder in set(folders) if folders.count(folder) > MOST_IN_A_FOLDER}
