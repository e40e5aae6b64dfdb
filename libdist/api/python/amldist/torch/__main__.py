"""``python -m amldist.torch``: how PyTorch's calls go here. Exit status: 0 done, 2 wrong usage."""

from __future__ import annotations

import sys

import torch
from amldist import _library
from amldist.torch import _direct

_NOTHING_TO_BUILD = (
    "There is nothing to build: the compiled calls know nothing of PyTorch's C++, so the file in the package serves every release."
)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["build"]):
        print("usage: python -m amldist.torch [build]", file=sys.stderr)
        return 2
    if arguments:
        print(_NOTHING_TO_BUILD)
    print(f"PyTorch      {torch.__version__}: init_process_group(\"amldist\")")
    print(f"library      {_library.path}")
    print(f"calls        {'compiled' if _direct.install() else f'through Python: {_direct.why_not()}'}")
    return 0


sys.exit(main(sys.argv[1:]))
