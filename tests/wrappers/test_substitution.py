"""${{...}}: a value becomes text of the command, as on Azure ML, whatever characters it has. The oracle is bash on the text
in which Python has replaced the expressions."""

from __future__ import annotations

import json
import pathlib
import random
import re
import subprocess

import pytest
from conftest import USAGE

TRIALS = 150
SEED = 20261122

VALUES = ["", "plain", "two words", "  edges  ", "a'b", 'a"b', "`id -u`", "$HOME", "${HOME:-x}", "$(echo sub)", "a\\b", "a;b", "a&b",
          "#c", "a #c", "*", "~", "{a,b}", "l1\nl2", "ä’✓", "${{inputs.b}}", "}}", "=", "-n", "!x", "(", ")", "<<E", "$'x'", "|", ">"]
PLACES = ["{}", '"{}"', "'{}'", "--x={}", 'pre"{}"post', "# {}\necho", "<<E cat\n{}\nE\n", '"$(echo "{}")"', "$(echo {})", "$'{}'",
          "`echo {}`", "${{HOME:+{}}}", "\\{}", '"\\"{}"']


def command_of(script: str, aml_run, tmp_path: pathlib.Path) -> bytes:
    """What the script hands to each task's bash: everything up to the step is run, and srun prints it."""
    path = tmp_path / "script.sh"
    path.write_text(script.replace("srun --", 'srun() { while [[ $1 == --* ]]; do shift; done; printf %s "$3" >"$TOLD"; }\nsrun --', 1))
    done = subprocess.run(["bash", path], capture_output=True, cwd=tmp_path, check=False, timeout=20,
                          env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "TOLD": str(tmp_path / "told")})
    assert done.returncode == 0, (script, done)
    return (tmp_path / "told").read_bytes()


def job_text(command: str, **inputs: str) -> str:
    return json.dumps({"command": command, "inputs": inputs, "outputs": {"o": {}}}, ensure_ascii=False)


def test_the_command_is_the_text_with_its_values(aml_run, tmp_path):
    """Inputs alone are put in when the script is written, beside outputs when it runs: both give the same text."""
    generator = random.Random(SEED)
    for _ in range(TRIALS):
        places = [generator.choice(PLACES) for _ in range(generator.randrange(1, 4))]
        names = [generator.choice(["${{inputs.a}}", "${{ inputs.b }}", "${{outputs.o}}"]) for _ in places]
        command = " ".join(["prog", *(place.format(name) for place, name in zip(places, names, strict=True))]).rstrip("\n")
        a, b = generator.choice(VALUES), generator.choice(VALUES)
        (tmp_path / "job.yml").write_text(job_text(command, a=a, b=b))
        folder = str(tmp_path / "outputs/7/o")
        expected = re.sub(r"\$\{\{ ?(\w+\.\w) ?\}\}", lambda m: {"inputs.a": a, "inputs.b": b, "outputs.o": folder}[m.group(1)], command)
        script = aml_run.good("--dry-run", str(tmp_path / "job.yml"), cwd=tmp_path).text
        assert command_of(script, aml_run, tmp_path).decode() == expected.rstrip("\n"), script


@pytest.mark.parametrize("place", ["{}", '"{}"', "'{}'", "x={}y", '"x {} y"', "'it'\"{}\"", "$(echo end){}", "a # {}", '\\"{}'])
def test_literal_makes_a_value_one_word(aml_run, tmp_path, place):
    """Wherever bash's reading is certain: the words that bash makes are those of a harmless value, with the value in them."""
    for value in VALUES:
        got = []
        for each in (value, "HARMLESS"):
            (tmp_path / "job.yml").write_text(job_text("printf '<%s>' " + place.format("${{inputs.a}}") + "  ${{outputs.o}}", a=each))
            script = aml_run.good("--dry-run", "--literal", str(tmp_path / "job.yml"), cwd=tmp_path).text
            got.append(subprocess.run(["bash", "-c", command_of(script, aml_run, tmp_path)], capture_output=True, check=True).stdout)
        assert got[0] == got[1].replace(b"HARMLESS", value.encode()), (place, value)


@pytest.mark.parametrize("place", ["cat <<E\n{}\nE", "`echo {}`", '"$(echo {})"', "$'{}'", '"${{HOME:-{}}}"', "$((1 + {}))", "\\{}", "${}"])
def test_literal_refuses_where_it_cannot_tell(aml_run, tmp_path, place):
    (tmp_path / "job.yml").write_text(job_text("echo " + place.format("${{inputs.a}}"), a="a; b"))
    said = aml_run.refusal(USAGE, "--dry-run", "--literal", str(tmp_path / "job.yml"))
    assert "job.yml:1:13: inputs.a " in said and ("word of its own" in said or "remove the" in said), said


@pytest.mark.parametrize("place, value, told", [
    ("{}", "a;b", "bash acts on ; in it"), ("{}", "$x `y`", "bash acts on $ ` in it"), ("{}", "l1\nl2", "newline"),
    ('"{}"', "$x", "bash acts on $ in it, in these quotes too"), ("'{}'", "a'b", "bash acts on ' in it"),
    ("{}", "~/x", "bash acts on ~"), ("{}", "{a,b}", "bash acts on {"), ("{}", "*.py", "bash acts on *"),
    ('"{}"', "a;b *", None), ("'{}'", '$x "', None), ("{}", "--a 1 --b 2", None), ("{}", "time-based", None), ("{}", "a#b~c", None),
    ("{}", "0.1,0.2=x:@/%+", None), ("{}", "{a}", None),
])
def test_a_value_that_bash_acts_on_is_warned_about(aml_run, tmp_path, place, value, told):
    (tmp_path / "job.yml").write_text(job_text("prog " + place.format("${{inputs.a}}"), a=value))
    done = aml_run.good("--dry-run", str(tmp_path / "job.yml"))
    lines = done.said.splitlines()
    if told is None:
        assert lines == []
    else:
        assert len(lines) == 1 and told in lines[0] and lines[0].endswith("--literal makes it one word"), lines
        assert lines[0].startswith(f"aml-dist: {tmp_path}/job.yml:1:13: inputs.a is ")
        assert aml_run.good("--dry-run", "--literal", str(tmp_path / "job.yml")).said == ""


def test_a_path_with_a_blank_is_warned_about_outside_of_quotes(aml_run, tmp_path):
    (tmp_path / "two words").mkdir()
    for place, warned in (("${{inputs.d}}", True), ('"${{inputs.d}}"', False), ("'${{inputs.d}}'", False), ('"${{inputs.d}}/x"', False),
                          ("'-d=${{inputs.d}} -e'", False), ('"a"${{inputs.d}}"b"', True), ('# "\\n${{inputs.d}}', True)):
        (tmp_path / "job.yml").write_text(json.dumps({"command": f"prog {place}", "inputs": {"d": {"path": "./two words"}}}))
        told = "bash splits it at blanks, as on Azure ML: put it in double quotes, or --literal makes it one word"
        assert (told in aml_run.good("--dry-run", str(tmp_path / "job.yml")).said) == warned


def test_values_reach_no_line_but_the_command(aml_run, tmp_path):
    """No #SBATCH line, job name, file name or other shell of the script sees a value."""
    evil = "x\n#SBATCH --nodes=99\n$(touch evil)`touch evil`';touch evil;'"
    (tmp_path / "job.yml").write_text(job_text("true ${{inputs.a}} ${{outputs.o}} '", a=evil).replace("true", ": '"))
    script = aml_run.good("--dry-run", str(tmp_path / "job.yml"), cwd=tmp_path).text
    # sbatch reads its lines up to the first command.
    assert "nodes=99" not in re.split(r"^(?!#|\s*$)", script, maxsplit=1, flags=re.M)[0]
    assert evil in command_of(script, aml_run, tmp_path).decode()
    assert not list(tmp_path.rglob("evil"))


def test_an_environment_variable_may_hold_an_output(aml_run, tmp_path):
    (tmp_path / "job.yml").write_text(json.dumps({"command": "x", "outputs": {"o": {}}, "inputs": {"a": "$(id) '"},
                                                  "environment_variables": {"A": "<${{outputs.o}}|${{inputs.a}}>"}}))
    script = aml_run.good("--dry-run", str(tmp_path / "job.yml"), cwd=tmp_path).text
    told = command_of(script.replace('bash -c "$command"', 'bash -c "$A"'), aml_run, tmp_path).decode()
    assert told == f"<{tmp_path}/outputs/7/o|$(id) '>"


@pytest.mark.parametrize("words, said", [(["--fill-in", "${{a}}"], "${{a}} has no value"), (["--fill-in", "x", "a"], "EXPRESSION=VALUE"),
                                         (["--fill-in", "${{a"], "is not closed")])
def test_the_program_that_fills_in_says_what_is_wrong(aml_run, words, said):
    assert said in aml_run.refusal(USAGE, *words)


def test_one_pass(aml_run):
    """A value that looks like an expression stays what it is."""
    assert aml_run.good("--fill-in", "${{a}}${{b}}", "a=${{b}}", "b=${{a}}").text == "${{b}}${{a}}"
