"""What libdist/base/os does once, nobody else does by himself."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("libdist", "spank", "srun-wrappers") for path in sorted((ROOT / folder).rglob("*"))
           if path.suffix in (".cpp", ".hpp") and "test" not in path.parts]
# In the plugin's monitor of a task the parent becomes the monitor: it starts no child.
MONITOR = {"spank/task/task_monitor.cpp"}
RULES = {
    # process_stack.cpp reads that of another process, in /proc.
    "base/os/environment": (r"\b(secure_)?getenv\(|\benviron\b", {"libdist/trace/record/process_stack.cpp"}),
    "base/os/child_process": (r"(?<!\w)::v?fork\(|\bposix_spawnp?\(|\bpopen\(|\bsystem\(|(?<!\w)::execv\w*\(", MONITOR),
    "base/net/own_network": (r"\bgethostname\(", set()),
    "base/time/clock": (r"using \w+ = std::chrono::steady_clock;", {"libdist/step/messages/server_release.hpp"}),
    "base/text/hex": (r'"0123456789abcdef"', {"libdist/base/text/hex.hpp"}),
    "base/text/natural_order": (r"bool natural_\w+\(", {"libdist/base/text/natural_order.hpp"}),
}


def offenders(pattern: str, allowed: set[str]) -> list[str]:
    found = []
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        if not name.startswith(("libdist/base/os/", "libdist/base/net/", "libdist/base/time/")) and name not in allowed and re.search(pattern, code):
            found.append(name)
    return found


@pytest.mark.parametrize("place", RULES)
def test_only_one_place_does_it(place):
    assert not offenders(*RULES[place]), f"use {place}.hpp"


@pytest.mark.parametrize("place", RULES)
def test_the_place_does_it(place):
    """A pattern that matches nothing would forbid nothing."""
    pattern = RULES[place][0]
    sources = [path for suffix in (".hpp", ".cpp") if (path := ROOT / f"libdist/{place}{suffix}").exists()]
    assert any(re.search(pattern, path.read_text()) for path in sources)
