"""Every man page passes mandoc's lint, and nothing that a user can call is without one."""

import pathlib
import re
import shlex
import subprocess

import pytest
from tree import plugstack_arguments

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAN = ROOT / "docs/man"
PAGES = sorted(path.name for path in MAN.iterdir())


@pytest.mark.parametrize("page", PAGES)
def test_mandoc(page):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], cwd=MAN, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def installed_commands() -> list[str]:
    """What CMake installs into bin; the launchers stand in a list."""
    text = "".join(file.read_text() for file in sorted((ROOT / "srun-wrappers").rglob("CMakeLists.txt")))
    launchers = re.search(r"foreach\(launcher ([^)]*)\)", text)[1].split()
    return sorted({*re.findall(r"install\(TARGETS (aml-[a-z]+)", text), *(f"aml-{name}" for name in launchers)})


@pytest.mark.parametrize("command", installed_commands())
def test_a_command_has_a_page(command):
    """A page of its name, or one that names it, to which docs/CMakeLists.txt installs a link."""
    heads = [(MAN / page).read_text().partition(".Sh SYNOPSIS")[0] for page in PAGES if page.endswith(".1")]
    assert any(re.search(rf"^\.Nm {command}( ,)?$", head, re.MULTILINE) for head in heads)


def subcommands() -> list[str]:
    text = (ROOT / "srun-wrappers/aml_dist/main.cpp").read_text()
    return re.findall(r"\badd_([a-z]+)\(app\)", re.search(r"commands = \{(.*?)\};", text, re.DOTALL)[1])


@pytest.mark.parametrize("subcommand", subcommands())
def test_a_subcommand_has_its_paragraph(subcommand):
    assert re.search(rf"^\.(Ss|It|Nm|Ic|Cm).*\b{subcommand}\b", (MAN / "aml-dist.1").read_text(), re.MULTILINE)


def functions() -> dict[str, list[str]]:
    """Of the C interface: name and parameters, with pointers as the pages have them: `char *text`."""
    header = (ROOT / "libdist/api/include/amldist/amldist.h").read_text()
    found = re.findall(r"^AMLDIST_API [^;(]*?\b(amldist_\w+)\(([^;]*?)\);", header, re.MULTILINE | re.DOTALL)
    return {name: [re.sub(r"(\*+) (?=\w)", r" \1", " ".join(each.split())) for each in parameters.split(",")]
            for name, parameters in found}


def synopsis(text: str) -> dict[str, list[str]]:
    """The same from a page: `.Fn NAME ARGUMENT...` on one line, or `.Fo NAME`, a line `.Fa ARGUMENT` for each, `.Fc`."""
    part = text[text.index(".Sh SYNOPSIS"):text.index(".Sh DESCRIPTION")]
    short = {words[0]: words[1:] for words in map(shlex.split, re.findall(r"^\.Fn (.*)$", part, re.MULTILINE))}
    long = re.findall(r"^\.Fo (\w+)\n((?:\.Fa .*\n)*)\.Fc$", part, re.MULTILINE)
    return short | {name: [" ".join(shlex.split(line)[1:]) for line in lines.splitlines()] for name, lines in long}


@pytest.mark.parametrize("function", functions())
def test_a_function_is_named_and_shown_as_the_header_has_it(function):
    """`man FUNCTION` finds the page whose NAME has it, by a link that docs/CMakeLists.txt installs."""
    (page,) = [page for page in PAGES
               if page.endswith(".3") and re.search(rf"^\.Nm {function}( ,)?$", (MAN / page).read_text(), re.MULTILINE)]
    text = (MAN / page).read_text()
    assert synopsis(text)[function] == functions()[function], page
    described = text[text.index(".Sh DESCRIPTION"):]
    base = function.replace("amldist_i", "amldist_", 1)  # what does not wait is described once, with what waits
    assert f".Fn {function}" in described or f"Fn {base}" in described, page


@pytest.mark.parametrize("argument", plugstack_arguments())
def test_an_argument_of_plugstack_is_described(argument):
    page = (MAN / "spank_aml_dist.8").read_text().replace(r"\&", "")
    assert re.search(rf"^\.(It )?Cm {re.escape(argument)}( |$)", page, re.MULTILINE)


def keys() -> list[str]:
    return re.findall(r'^ *Key\{"([a-z_]+)",', (ROOT / "libdist/launch/option/spec.cpp").read_text(), re.MULTILINE)


@pytest.mark.parametrize("key", keys())
def test_a_key_of_the_option_is_described(key):
    assert re.search(rf"^\.It .*\b{key}\b", (MAN / "aml_dist.7").read_text(), re.MULTILINE)
