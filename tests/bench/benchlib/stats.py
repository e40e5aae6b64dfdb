"""Medians, their confidence intervals, and verdicts.

Launch times have long tails and drift with the machine's load, so: medians instead of means, and comparisons by the
differences or ratios of things that were measured in the same round.
"""

import random
import statistics
from dataclasses import asdict, dataclass

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Figure:
    """A median with its 95 % confidence interval."""

    median: float
    low: float
    high: float

    def text(self, digits=2, scale=1.0):
        return f"{self.median * scale:.{digits}f} ({self.low * scale:.{digits}f}..{self.high * scale:.{digits}f})"

    def as_dict(self):
        return asdict(self)


def figure(samples, seed=1):
    """The median of independent samples, with a percentile bootstrap interval (Efron 1979)."""
    samples = list(samples)
    if not samples:
        return Figure(float("nan"), float("nan"), float("nan"))
    dice = random.Random(seed)
    medians = sorted(statistics.median(dice.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Figure(statistics.median(samples), medians[cut], medians[-1 - cut])


def ratio(rounds, base):
    """Of two measurements paired by round."""
    return figure([a / b for a, b in zip(rounds, base, strict=True)])


def difference(rounds, base):
    return figure([a - b for a, b in zip(rounds, base, strict=True)])


def at_most(value, limit):
    """Whether the whole interval keeps the limit, breaks it, or cannot tell."""
    if value.high <= limit:
        return "met"
    return "not met" if value.low > limit else "undecided"
