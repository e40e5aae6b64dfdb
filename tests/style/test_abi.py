"""libamldist.so has the ABI that is recorded: functions, their versions, the layout of public structures."""

import subprocess

import abi
import pytest


def test_the_library_has_the_recorded_abi():
    if not abi.LIBRARY.exists():
        pytest.skip(f"{abi.LIBRARY} is not built")
    said = abi.verdict(abi.BASELINE.read_text(), abi.dump(abi.LIBRARY))
    assert not said, said


HEADER = "struct shown { long first; int second; };\nint look(const struct shown *);\nint touch(int);\n"
SOURCE = "int look(const struct shown *it) { return it->second; }\nint touch(int it) { return it; }\n"


@pytest.fixture
def library(tmp_path):
    """Makes a dump of a small library from its header and its source."""
    def make(header=HEADER, source=SOURCE):
        (tmp_path / "small.h").write_text(header)
        (tmp_path / "small.c").write_text(f'#include "small.h"\n{source}')
        subprocess.run(["cc", "-g", "-shared", "-fPIC", "-o", "libsmall.so", "small.c"], cwd=tmp_path, check=True)
        return abi.dump(tmp_path / "libsmall.so", tmp_path)
    return make


def test_the_same_is_the_same(library):
    assert abi.verdict(library(), library()) == ""


def test_a_lost_function_is_a_break(library):
    said = abi.verdict(library(), library(HEADER.replace("int touch(int);\n", ""), SOURCE.splitlines()[0]))
    assert said.startswith("programs that were compiled before") and "- int touch(int)" in said


def test_a_member_that_moves_is_seen(library):
    said = abi.verdict(library(), library(HEADER.replace("long first; int second;", "int second; long first;")))
    assert "- struct shown: first at bit 0, long int" in said and "+ struct shown: first at bit 64, long int" in said


def test_a_parameter_of_another_type_is_seen(library):
    said = abi.verdict(library(), library(HEADER.replace("touch(int)", "touch(long)"), SOURCE.replace("touch(int it)", "touch(long it)")))
    assert "- int touch(int)" in said and "+ int touch(long int)" in said


def test_a_new_function_is_seen_and_is_no_break(library):
    said = abi.verdict(library(), library(HEADER + "int more(void);\n", SOURCE + "int more(void) { return 1; }\n"))
    assert said.startswith("the interface has changed:\n+ int more()"), said
