#!/usr/bin/env python3
"""tests/style/abi.py [--write] [LIBRARY]: whether libamldist.so still has the ABI that tests/style/libamldist.abi records.

Compared are the functions with their versions and types, and the layout of the public structures, as libabigail reads them: a
line for each function, member and enumerator. A line that is lost or differs is a break. LIBRARY is build-development/lib/libamldist.so
unless given; it has to be built with -g, as the development preset does. --write records the ABI as it is: after an addition, or with
a new SONAME after a break. Exit status: 0 the same, 1 not, 2 wrong usage.
"""

import argparse
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = pathlib.Path(__file__).with_name("libamldist.abi")
HEADERS = ROOT / "libdist/api/include/amldist"
LIBRARY = ROOT / "build-development/lib/libamldist.so"


def lines_of(corpus: ElementTree.Element) -> set[str]:
    """What a program that was compiled against the library relies on."""
    types: dict[str, ElementTree.Element] = {}
    for each in corpus.iter():
        known = types.get(each.get("id", ""))
        if "id" in each.attrib and (known is None or known.get("is-declaration-only")):
            types[each.get("id")] = each

    def name(identity: str) -> str:
        one = types[identity]
        if one.tag == "pointer-type-def":
            return name(one.get("type-id")) + "*"
        if one.tag == "qualified-type-def":
            return "const " + name(one.get("type-id"))
        if one.tag == "function-type":
            return signature(one, "")
        kind = {"class-decl": "struct ", "enum-decl": "enum "}.get(one.tag, "")
        return kind + one.get("name")

    def signature(function: ElementTree.Element, called: str) -> str:
        parameters = ["..." if each.get("is-variadic") else name(each.get("type-id")) for each in function.iter("parameter")]
        return f"{name(function.find('return').get('type-id'))} {called}({', '.join(parameters)})"

    lines = {signature(each, each.get("elf-symbol-id")) for each in corpus.iter("function-decl") if each.get("elf-symbol-id")}
    for one in types.values():
        if one.tag == "typedef-decl":
            lines.add(f"typedef {one.get('name')}: {name(one.get('type-id'))}")
        elif one.tag == "type-decl":
            lines.add(f"{one.get('name')}: {one.get('size-in-bits', 0)} bits")
        elif one.tag == "enum-decl":
            lines |= {f"{name(one.get('id'))}: {each.get('name')} = {each.get('value')}" for each in one.iter("enumerator")}
        elif one.tag == "class-decl" and not one.get("is-declaration-only"):
            lines.add(f"{name(one.get('id'))}: {one.get('size-in-bits')} bits")
            lines |= {f"{name(one.get('id'))}: {each.find('var-decl').get('name')} at bit {each.get('layout-offset-in-bits')}, "
                      f"{name(each.find('var-decl').get('type-id'))}" for each in one.iter("data-member")}
    return lines | {f"soname {corpus.get('soname')}"}


def dump(library: pathlib.Path, headers: pathlib.Path = HEADERS) -> str:
    """Of the public interface only."""
    done = subprocess.run(["abidw", "--headers-dir", headers, "--exported-interfaces-only", "--drop-private-types", "--no-show-locs",
                           "--no-parameter-names", library], capture_output=True, text=True, check=True)
    return "".join(f"{line}\n" for line in sorted(lines_of(ElementTree.fromstring(done.stdout))))


def verdict(baseline: str, found: str) -> str:
    """Empty without a difference."""
    recorded, built = set(baseline.splitlines()), set(found.splitlines())
    if recorded == built:
        return ""
    kind = "programs that were compiled before do not work with this" if recorded - built else "the interface has changed"
    report = "".join([*(f"- {line}\n" for line in sorted(recorded - built)), *(f"+ {line}\n" for line in sorted(built - recorded))])
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
