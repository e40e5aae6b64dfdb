#!/usr/bin/env python3
"""tests/style/abi.py [--write] [LIBRARY]: whether libamldist.so still has the ABI that tests/style/libamldist.abi records.

Compared are the functions with their versions and types, and the layout of the public structures, with libabigail. LIBRARY is
build-development/lib/libamldist.so unless given; it has to be built with -g, as the development preset does. --write records
the ABI as it is: after an addition, or with a new SONAME after a break. Exit status: 0 the same, 1 not, 2 wrong usage.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = pathlib.Path(__file__).with_name("libamldist.abi")
HEADERS = ROOT / "libdist/api/include/amldist"
LIBRARY = ROOT / "build-development/lib/libamldist.so"
BROKEN = 8  # of abidiff's exit status: what was compiled against the old library does not work with the new one


def dump(library: pathlib.Path, headers: pathlib.Path = HEADERS) -> str:
    """Of the public interface only, and without what depends on where it was built."""
    done = subprocess.run(
        ["abidw", "--headers-dir", headers, "--exported-interfaces-only", "--drop-private-types", "--drop-undefined-syms",
         "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--no-elf-needed",
         "--no-parameter-names", "--type-id-style", "hash", library], capture_output=True, text=True, check=True)
    return re.sub(r" path='[^']*?(libdist/[^']*)'", r" path='\1'", done.stdout)


def difference(baseline: str, found: str) -> tuple[bool, str]:
    """Whether it is a break, and a report, which is empty without a difference."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("recorded.abi", "built.abi")]
        for file, text in zip(files, (baseline, found)):
            file.write_text(text)
        done = subprocess.run(["abidiff", *files], capture_output=True, text=True)
    return bool(done.returncode & BROKEN), done.stdout + done.stderr if done.returncode else ""


def verdict(baseline: str, found: str) -> str:
    """Empty without a difference."""
    broken, report = difference(baseline, found)
    if not report:
        return ""
    kind = "programs that were compiled before do not work with this" if broken else "the interface has changed"
    return f"{kind}:\n{report}If that is meant: tests/style/abi.py --write, and say so in CHANGELOG.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the ABI of LIBRARY")
    parser.add_argument("library", nargs="?", type=pathlib.Path, default=LIBRARY, metavar="LIBRARY")
    arguments = parser.parse_args()
    found = dump(arguments.library)
    if arguments.write:
        BASELINE.write_text(found)
    said = verdict(BASELINE.read_text(), found)
    print(said or "the ABI is the recorded one")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
