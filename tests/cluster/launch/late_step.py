"""A node whose slurmstepd is slower than those of the other nodes."""

from __future__ import annotations

import contextlib
import os
import pathlib

from cluster import Cluster, readable_copy
from test_containers import plugstack


@contextlib.contextmanager
def late_step(cluster: Cluster, workdir: pathlib.Path, node: str, seconds: int, before_it_reports: bool = False):
    """slurmstepd of this node is held up for so long, after it has reported to srun or before."""
    source = readable_copy(pathlib.Path(__file__).resolve().parent / "late_plugin.c")
    assert cluster.run(f"cc -shared -fPIC -o {workdir}/late.so {source}").status == 0
    late = f"required {workdir}/late.so {node} {seconds}"
    ours = f"required {os.environ['AMLDIST_PLUGIN']}"
    with plugstack(cluster, *[late] * before_it_reports, ours, *[late] * (not before_it_reports)):
        yield
