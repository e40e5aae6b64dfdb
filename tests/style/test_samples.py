"""The samples for plugstack.conf have every argument that the plugin reads, as a comment, and active is only the line itself."""

import pathlib
import re

import pytest
from tree import plugstack_arguments

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = (ROOT / "contrib/plugstack/aml-dist.conf").read_text()
OPTIONS = (ROOT / "contrib/plugstack/options.conf").read_text()


@pytest.mark.parametrize("argument", plugstack_arguments())
def test_an_argument_is_in_the_sample_with_its_meaning(argument):
    assert re.search(rf"^# {re.escape(argument)}\S* +[A-Z]", SAMPLE, re.MULTILINE)


@pytest.mark.parametrize("argument", [name for name in plugstack_arguments() if name not in ("config", "config_optional")])
def test_an_argument_is_in_the_sample_of_the_shared_file(argument):
    assert re.search(rf"^# {re.escape(argument)}\S*( /.*)?$", OPTIONS, re.MULTILINE)


def test_nothing_but_the_line_is_active():
    active = [line for text in (SAMPLE, OPTIONS) for line in text.splitlines() if line and not line.startswith("#")]
    assert active == ["required /opt/aml-dist/lib/slurm/spank_aml_dist.so"]


def test_why_it_is_required_is_said():
    assert re.search(r"^# `required`: under `optional` Slurm ignores every refusal", SAMPLE, re.MULTILINE)
