"""One trial of each kind of fault under aml-dist keep (trials.py) that this cluster can have, at a moment and on a node by the seed of
the day, AMLDIST_KEEP_SEED. What takes a minute, and many trials of each: tests/soak/keep."""

import os
import time

import pytest
from trials import KINDS, Trial

SEED = os.environ.get("AMLDIST_KEEP_SEED", time.strftime("%Y%m%d"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_quick and not kind.needs], ids=lambda kind: kind.name)
def test_a_fault_by_the_seed(cluster, workdir, kind):
    trial = Trial(cluster, workdir, kind.name, SEED)
    try:
        kind.run(trial)
        seconds = trial.seconds()
        assert seconds is None or kind.limit is None or seconds < kind.limit + 5, (seconds, trial.kept.text())  # this machine is slow
    finally:
        trial.clean()
