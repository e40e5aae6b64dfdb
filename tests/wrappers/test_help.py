"""--help of every command and subcommand: one style, 80 columns, and none of the parser library's own words."""

from __future__ import annotations

import re

import pytest
from conftest import USAGE, Command

ALONE = ["aml-run", "aml-torchrun", "aml-mpirun", "aml-deepspeed", "aml-horovodrun", "aml-dist"]
LEAKS = r"\b(TEXT|UINT|INT|FLOAT|ENUM|REQUIRED|BOOLEAN|OPTIONS|Excludes|Needs|Positionals|Subcommands|Usage)\b| in \[|\{\w+,\w+|->|,--"


def subcommands() -> list[str]:
    listed = re.findall(r"^  ([a-z-]+) {2,}\S", Command("aml-dist").good("--help").text, re.M)
    return [name for name in listed if not name.startswith("-")]


def helps() -> dict[str, str]:
    texts = {name: Command(name).good("--help").text for name in ALONE}
    return texts | {f"aml-dist {name}": Command("aml-dist").good(name, "--help").text for name in subcommands()}


def test_every_subcommand_is_listed():
    assert {"explain", "doctor", "check", "check-config", "bench", "keep", "ray", "order", "stop", "trace", "exec"} <= set(subcommands())


def test_every_help_has_one_style():
    for name, text in helps().items():
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80, (name, max(lines, key=len))
        assert re.match(r"Examples?(, in a batch script.*)?:\n  ", text), name
        assert re.search(rf"^{name} .*(\[|[A-Z])", text, re.M), f"{name}: how it is called"
        assert re.search(r"^Exit status: ", text, re.M), name
        found = re.search(LEAKS, text)
        assert not found, (name, found)
        assert not re.search(r"^  (-\w, )?--\S+( \S+)? {2,}[A-Z][a-z]+ [a-z]", text, re.M), f"{name}: a meaning begins in lower case"
        assert "\n\n\n" not in text and not re.search(r" $", text, re.M), name


@pytest.mark.parametrize("kind_help", [["aml-run", "--kind=help"], ["aml-dist", "explain", "--aml-dist=help"]])
def test_the_help_of_the_option_fits(kind_help):
    text = Command(kind_help[0]).good(*kind_help[1:]).text
    assert "Keys:" in text and max(map(len, text.splitlines())) <= 80, max(text.splitlines(), key=len)


@pytest.mark.parametrize("words, said", [
    (["trace", "--last", "0"], "invalid value '0' for --last: use 1 to 65536"),
    (["trace", "--format", "x"], "invalid value 'x' for --format: use text, json, openmetrics"),
    (["explain", "--job", "x"], "invalid value 'x' for --job: use a number"),
    (["check", "--polcy", "off"], "there is no option '--polcy': did you mean --policy?"),
    (["order", "word"], "unexpected argument 'word'"),
    (["bench", "--op"], "--op needs a value"),
    (["stop"], "JOBID[.STEP] is missing"),
    (["trace", "--json", "--stacks"], "--stacks excludes --json"),
])
def test_a_wrong_line_points_to_the_subcommands_help(words, said):
    assert Command("aml-dist").refusal(USAGE, *words) == f"{said} (see aml-dist {words[0]} --help)"


VALUED = ["--json=3", "--help=x", "--help=", "-h=3", "-h=", "--json=true"]


def has_flag(text: str, flag: str) -> bool:
    return re.search(rf"^  (-\w, )?{flag}(,.*)?( {{2,}}|$)", text, re.M) is not None


def test_a_flag_takes_no_value_in_any_command():
    """CLI11 takes "--json=3" for "--json"."""
    launchers = ["aml-torchrun", "aml-mpirun", "aml-deepspeed", "aml-horovodrun"]
    commands = [[name] for name in ["aml-run", "aml-dist", *launchers]] + [["aml-dist", name] for name in subcommands() if name != "exec"]
    for name, *words in commands:
        text = Command(name).good(*words, "--help").text
        for valued in VALUED:
            flag = valued.split("=")[0]
            if flag == "--json" and name not in launchers and not has_flag(text, "--json"):
                continue
            said = Command(name).refusal(USAGE, *words, valued)
            assert f"{flag} takes no value (see " in said, (name, words, valued, said)
    for name, words in (("aml-run", ["--wait=1"]), ("aml-run", ["-W=1"]), ("aml-run", ["-qx", "-H=3"]), ("aml-dist", ["check", "-qv=1"])):
        assert re.search(r"-(-wait|W|H|v) takes no value", Command(name).refusal(USAGE, *words)), words


def test_what_looks_like_a_flag_with_a_value_may_be_a_value():
    assert "takes no value" not in Command("aml-dist").run("explain", "--aml-dist", "--json=3").said
    assert "takes no value" not in Command("aml-run").run("--dry-run", "--comment", "--json=3", "--", "x", "--help=3").said
    assert "--exclusive=user" in Command("aml-run").good("--dry-run", "--exclusive=user", "--", "x").text


def test_a_wrong_option_of_aml_dist_itself():
    assert Command("aml-dist").refusal(USAGE) == "a command is missing (see aml-dist --help)"
    assert Command("aml-dist").refusal(USAGE, "--verison") == "there is no option '--verison': did you mean --version? (see aml-dist --help)"


@pytest.mark.parametrize("option, said", [
    ("pytorch, verbose", "a blank stands in ' verbose': write KIND,KEY=VALUE without blanks"),
    ("pytorch,", "a key is missing behind a comma: write KIND,KEY=VALUE without blanks"),  # srun's word of "pytorch, verbose"
    ("pytorch,process_count_per_node=1,process_count_per_instance=1", "two spellings of one key: keep one"),
    ("pytorch,process_count_per_instance=1,process_count_per_node=1", "two spellings of one key: keep one"),
    ("pytorch,verbose,verbose", "key 'verbose' is given twice: keep one"),
])
def test_slips_in_the_option(option, said):
    assert said in Command("aml-dist").refusal(USAGE, "explain", f"--aml-dist={option}", "--nodelist=n1", "--tasks-per-node=1")
