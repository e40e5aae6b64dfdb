"""clang-tidy has nothing to say about what has changed (tests/style/tidy.py --all looks at everything)."""

import subprocess
import sys

import tidy

KNOWN = ["libdist/base/text/text.cpp", "libdist/launch/option/spec.cpp", "libdist/api/c/guard.cpp"]


def test_what_has_changed_is_tidy():
    done = subprocess.run([sys.executable, tidy.__file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_header_is_looked_at_in_the_file_of_its_name():
    assert tidy.translation_units(["libdist/base/text/text.hpp"], KNOWN) == ["libdist/base/text/text.cpp"]


def test_a_header_without_such_a_file_is_looked_at_where_it_is_included():
    assert tidy.translation_units(["libdist/base/text/result.hpp"], ["libdist/trace/diagnosis/last_call.cpp", *KNOWN]) == ["libdist/trace/diagnosis/last_call.cpp"]


def test_a_file_is_looked_at_once_and_what_is_no_code_is_not():
    names = ["libdist/base/text/text.cpp", "libdist/base/text/text.hpp", "libdist/CMakeLists.txt", "libdist/base/text/README.md"]
    assert tidy.translation_units(names, KNOWN) == ["libdist/base/text/text.cpp"]
