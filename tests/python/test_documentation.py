"""docs/python.md: its programs run, and its table has every method as the package has it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import ROOT, environment

PAGE = (ROOT / "docs/python.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_the_programs_of_the_page_run(run, module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    program, = [each for each in PROGRAMS if f"import {module}\n" in each]
    checks = {"numpy": "assert everything.shape == (comm.size, 1000) and everything[0, 0] == everything[1, 0] == total[0]\n",
              "torch": "assert gradient.tolist() == [[1.0] * 8] * 4\n"}
    run(program + checks[module], preamble="")


def test_the_table_has_every_method_with_its_arguments():
    done = subprocess.run([sys.executable, "-c", SIGNATURES], env=environment(), capture_output=True, text=True, check=True)
    methods = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \| (?:`(\w+)`|-) \|", PAGE, re.MULTILINE)
    shown = {name: arguments for name, arguments, _ in rows} | {other: arguments for _, arguments, other in rows if other}
    assert shown == methods, set(shown.items()) ^ set(methods.items())


# Annotations are left out, as in the table.
SIGNATURES = """
import inspect, amldist
for name, method in vars(amldist.Communicator).items():
    if name.startswith("_") or not callable(method): continue
    signature = inspect.signature(method)
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in list(signature.parameters.values())[1:]]
    text = str(inspect.Signature(plain))[1:-1].replace("'", '"')
    print(name, text)
"""
