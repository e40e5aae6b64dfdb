"""The tables of settings (settings.cpp of each wing), their documents and the sources say the same.

python3 tests/style/test_settings.py writes the table into docs/environment-reference.md.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/environment-reference.md"
HEADING = "## Variables that libamldist and the tools read\n"
SOURCES = [path for folder in ("libdist", "spank", "srun-wrappers") for path in sorted((ROOT / folder).rglob("*"))
           if path.suffix in (".cpp", ".hpp", ".c", ".h") and "test" not in path.parts]
# Variables that aml-dist sets for itself and reads back: no settings.
MARKS = {"AMLDIST_BACKEND", "AMLDIST_HIDDEN_", "AMLDIST_HIDDEN_PMIX_NAMESPACE", "AMLDIST_HIDDEN_PMIX_RANK",
         "AMLDIST_HIDDEN_SLURM_NPROCS", "AMLDIST_HIDDEN_SLURM_NTASKS", "AMLDIST_HIDDEN_SLURM_STEP_ID", "AMLDIST_END_RECORD", "AMLDIST_JOB_RECORD",
         "AMLDIST_KEEP", "AMLDIST_OPTION", "AMLDIST_RESTART",
         "AMLDIST_STAMP"}


TABLES = [ROOT / path for path in ("libdist/launch/option/settings", "libdist/trace/record/settings", "libdist/world/settings",
                                   "libdist/collective/settings", "libdist/fabric/facts/settings",
                                   "srun-wrappers/aml_run/settings")]


def settings() -> list[dict[str, str]]:
    """The rows of all tables in the sources, by name."""
    return sorted((row for table in TABLES for row in rows_of(table)), key=lambda row: row["name"])


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    names = dict(re.findall(r'string_view (\w+) = "(\w+)";', path.with_suffix(".hpp").read_text()))
    table = re.search(r"SettingDescription>\(\{\n(.*?)\n\}\);", path.with_suffix(".cpp").read_text(), re.DOTALL)
    rows = []
    for row in re.findall(r"\{variable::(\w+),(.*?)\}", table[1], re.DOTALL):
        cells = [re.sub(r'"\s*"', "", cell) for cell in re.findall(r'"(?:[^"\\]|\\.)*"(?:\s+"(?:[^"\\]|\\.)*")*', row[1])]
        cells = [cell.strip('"') for cell in cells]
        rows.append(dict(zip(("name", "reader", "values", "default", "meaning"), [names[row[0]], *cells], strict=True)))
    return rows


def markdown() -> str:
    lines = ["| variable | read by | values | default | meaning |", "|---|---|---|---|---|"]
    lines += [f"| `{r['name']}` | {r['reader']} | {r['values']} | {r['default']} | {r['meaning']} |" for r in settings()]
    return "\n".join(lines) + "\n"


def section(text: str) -> tuple[str, str, str]:
    """What stands before the table in the reference, the table, and what stands behind it."""
    before, after = text.split(HEADING)
    table = re.search(r"^\|.*?(?=\n[^|]|\Z)", after, re.DOTALL | re.MULTILINE)
    return before + HEADING + after[:table.start()], after[table.start():table.end()].rstrip("\n") + "\n", after[table.end():]


def documented() -> dict[str, set[str]]:
    """The variables of ours in the ENVIRONMENT of each manual page."""
    out = {}
    for page in (ROOT / "docs/man").iterdir():
        chapter = re.search(r"^\.Sh ENVIRONMENT\n(.*?)(?=^\.Sh )", page.read_text(), re.DOTALL | re.MULTILINE)
        lines = re.findall(r"^\.It Ev (.*)", chapter[1], re.MULTILINE) if chapter else []
        out[page.name] = {name for line in lines for name in re.findall(r"AMLDIST_\w+", line)}
    return out


def test_the_reference_has_the_table():
    assert section(REFERENCE.read_text())[1] == markdown(), "run python3 tests/style/test_settings.py"


@pytest.mark.parametrize("row", [r for r in settings() if r["name"].startswith("AMLDIST_")], ids=lambda row: row["name"])
def test_a_manual_page_has_each_setting(row):
    pages = {"amldist_init.3"} if "amldist_init" in row["reader"] or "GPU" in row["reader"] else set()
    pages |= {"aml-dist.1"} if "aml-dist trace" in row["reader"] else set()
    pages |= {"aml-dist-check.1"} if "aml-dist check" in row["reader"] else set()
    pages |= {"amldist_should_stop.3"} if "amldist_should_stop" in row["reader"] else set()
    pages |= {"aml-run.1"} if "aml-run" in row["reader"] else set()
    assert pages, f"{row['reader']}: whose manual page is that?"
    for page in pages:
        assert row["name"] in documented()[page], f"{page} lacks it"


@pytest.mark.parametrize("page", sorted(page for page, names in documented().items() if names))
def test_a_manual_page_has_no_other_variable(page):
    others = documented()[page] - {row["name"] for row in settings()} - MARKS - {"AMLDIST_LAUNCH"}
    assert not others


def test_the_manual_page_has_the_default_timeout():
    default = next(row["default"] for row in settings() if row["name"] == "AMLDIST_TIMEOUT_MS")
    page = (ROOT / "docs/man/amldist_init.3").read_text()
    assert f"default {default}" in re.search(r"\.It Ev AMLDIST_TIMEOUT_MS\n(.*?)\.It", page, re.DOTALL)[1]
    code = (ROOT / "libdist/world/settings.hpp").read_text()
    assert re.search(r"timeout\{([\d']+)\}", code)[1].replace("'", "") == default


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_the_reference_has_what_is_set_for_ourselves(mark):
    own = re.search(r"^## Variables of aml-dist\n(.*?)^#", REFERENCE.read_text(), re.DOTALL | re.MULTILINE)[1]
    assert mark in own or (mark.startswith("AMLDIST_HIDDEN_") and "AMLDIST_HIDDEN_*" in own)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_reads_no_variable_past_the_table(path):
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    if path.with_suffix("") not in TABLES and "test" not in path.parts:
        assert not set(re.findall(r'"(AMLDIST_\w+)"', code)) - MARKS, "name it in the settings.hpp of its wing, with a row of the table"


if __name__ == "__main__":
    before, _, behind = section(REFERENCE.read_text())
    REFERENCE.write_text(before + markdown() + behind.removeprefix("\n"))
