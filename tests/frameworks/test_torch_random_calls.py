"""Random calls over libdist and over Gloo give the same. tests/soak/torch_calls makes thousands of them."""

from __future__ import annotations

import pathlib

import pytest
from test_amldist_backend import run

PROGRAM = (pathlib.Path(__file__).resolve().parent / "torch_random_calls.py").read_text()


def trial(seed: int, size: int, calls: int, limit: int = 90) -> str:
    """Makes the calls that a seed stands for on so many ranks. What was compared, and what Gloo refused."""
    return run(f"SEED, CALLS = {seed}, {calls}\n" + PROGRAM, size, AMLDIST_TEST_LIMIT=str(limit))[0].partition("\n")[0]


@pytest.mark.parametrize("seed, size", [(1, 2), (2, 3)])
def test_random_calls_give_what_gloo_gives(seed, size):
    trial(seed, size, 150)
