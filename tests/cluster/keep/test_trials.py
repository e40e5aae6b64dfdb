"""Faults under aml-dist keep (trials.py) that this cluster can have, at moments and on nodes by the seed of the day, AMLDIST_KEEP_SEED:
some of the quick kinds and one of those that take a minute, each day others. Many trials of each kind: tests/soak/keep."""

import os
import random
import time

import pytest
from trials import KINDS, Trial

SEED = os.environ.get("AMLDIST_KEEP_SEED", time.strftime("%Y%m%d"))
MOST = 8


def kinds_of_the_day():
    chance = random.Random(SEED)
    quick, slow = ([kind for kind in KINDS if kind.is_quick == is_quick and not kind.needs] for is_quick in (True, False))
    return [*chance.sample(quick, MOST), chance.choice(slow)]


@pytest.mark.parametrize("kind", kinds_of_the_day(), ids=lambda kind: kind.name)
def test_a_fault_by_the_seed(cluster, workdir, kind):
    trial = Trial(cluster, workdir, kind.name, SEED)
    try:
        kind.run(trial)
        seconds = trial.seconds()
        assert seconds is None or kind.limit is None or seconds < kind.limit + 5, (seconds, trial.kept.text())  # this machine is slow
    finally:
        trial.clean()
