"""Records the collective calls of PyTorch programs that know nothing of it, for `aml-dist trace` and `hang=`.

PyTorch's process groups offer hooks that see each call (PyTorch 2.15). What NCCL and libdist carry is recorded by
themselves; this sees all else, above all Gloo. PyTorch calls load() at `import torch` (entry point `torch.backends`). A
package of its own, which needs no library, so that programs that are not traced load nothing but these lines.
"""

from __future__ import annotations


def load() -> None:
    """Under `srun --aml-dist=...,trace` installs the hooks, else does nothing. Never raises: that would break torch."""
    import os

    if not os.environ.get("AMLDIST_TRACE"):
        return
    try:
        from amldist_trace._groups import install

        install()
    except Exception as error:  # tracing must not end the program
        import sys

        print(f"aml-dist: PyTorch's calls are not traced: {error}", file=sys.stderr)
