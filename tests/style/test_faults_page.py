"""docs/faults.md shows what srun really says of each cause that the live tests try, and nothing else."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cluster/faults"))

from causes import CAUSES  # noqa: E402

HEAD = r"aml-dist: first failure: rank \d \(local \d\) on node\d: "


def test_each_line_is_that_of_a_cause_and_each_cause_has_one():
    shown = re.findall(r"^(aml-dist: first failure: .*)$", (ROOT / "docs/faults.md").read_text(), re.MULTILINE)
    causes = {cause.says: cause for cause in reversed(CAUSES)}.values()  # a killed child says what the first does
    told = {cause.name: [line for line in shown if re.fullmatch(HEAD + cause.says, line)] for cause in causes}
    assert [name for name, lines in told.items() if len(lines) != 1] == []
    assert sum(map(len, told.values())) == len(shown), set(shown) - {line for lines in told.values() for line in lines}
