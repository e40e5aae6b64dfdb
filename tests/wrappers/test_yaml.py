"""Job files are read as Azure ML reads them, which is with PyYAML: the same values, or a refusal. Random documents in every
style that YAML has, whole and with characters changed, against PyYAML. More of them: AMLDIST_SOAK_FILES=100000."""

from __future__ import annotations

import json
import os
import random
import subprocess

import pytest
import yaml
from conftest import BIN, USAGE

FILES = int(os.environ.get("AMLDIST_SOAK_FILES", "10000"))
READER = BIN.parent / "tests/wrappers/read_yaml"

SCALARS = ["a", "train", "010", "0o10", "0x1F", "0b11", "0b", "1_000", "_1", "1:30", "1:30.5", "0:30", "190:20:30", "yes", "No", "ON",
           "yEs", "true", "False", "~", "null", "NULL", "", "1e-3", "1.0e-4", "1.5E+4", "1.e3", ".5", "-.5", "5.", "+5", "-0", "-0.0",
           ".inf", "-.INF", ".nan", "1e5", "1.0e400", "2020-01-01", "2020-1-1", "2001-12-14t21:59:43.10-05:00", "09", "0_8", "-010",
           "100000000000000000000", "1_0.5_0", "0.1", "123456789.123456789", "1.0e+16", "1.0e+15", "0.00001", "9007199254740993.0",
           "y", "n", "a b", "a:b", "a#b", "a #b", "-a", "?a", ":a", "a, b", "[", "]", "é", "日本", "a'b", 'a"b', "%a", "@", "`",
           "&a", "*a", "|", ">", "a\tb", "key: value", "${{inputs.x}}", "$[[--x ${{inputs.x}}]]", "C:\\dir", "http://a/b?c=d&e#f"]
ESCAPES = ["\\N", "\\_", "\\L", "\\P", "\\e", "\\ ", "\\x85", "\\xa0", "\\v"]
KEYS = ["a", "b", "inputs", "command", "x y", "é", "k-1", "d.e", "type", "path"]
KINDS = {bool: "truth", int: "whole", float: "real"}


def quoted(generator: random.Random, text: str) -> str:
    if generator.random() < 0.5:
        return "'" + text.replace("'", "''") + "'"
    out = json.dumps(text, ensure_ascii=generator.random() < 0.5)
    if generator.random() < 0.2:
        at = generator.choice([1, len(out) - 1])
        out = out[:at] + generator.choice(ESCAPES) * generator.randrange(1, 3) + out[at:]
    return out.replace("a", generator.choice(["a", "\\x61", "\\u0061", "\\U00000061"])) if generator.random() < 0.3 else out


def block(generator: random.Random, indent: int, in_list: bool) -> str:
    """A text behind | or >, with its lines."""
    lines = generator.choices(["a", "", "  more", "é # no comment", "- x", "k: v", "end  ", "\ttab", "${{inputs.x}} \\"], k=generator.randrange(1, 6))
    # yaml-cpp counts "|2" in a list from another column; no key of a job is a list of such texts.
    if in_list:
        lines[0] = "a"
    explicit = lines[0].startswith(" ") and not in_list
    # Without ">+": yaml-cpp gives such a text one newline less, and a command's last newlines are dropped anyway.
    head = generator.choice(["|", "|-", "|+", ">", ">-"])
    if explicit or (generator.random() < 0.1 and not in_list):
        head = f"{head[0]}2{head[1:]}"
    return head + generator.choice(["", " # why"]) + "\n" + "\n".join(" " * (indent + 2) + line if line else "" for line in lines)


def flow(generator: random.Random, depth: int) -> str:
    shape = generator.random()
    if depth > 2 or shape < 0.5:
        text = generator.choice(SCALARS)
        return text if generator.random() < 0.5 and not set(text) & set(",[]{}#:") else quoted(generator, text)
    if shape < 0.75:
        return "[" + ", ".join(flow(generator, depth + 1) for _ in range(generator.randrange(4))) + generator.choice(["", ",", " "]) + "]"
    pairs = [f"{generator.choice(KEYS)}{i}: {flow(generator, depth + 1)}" for i in range(generator.randrange(4))]
    return "{" + ", ".join(pairs) + "}"


def anything(generator: random.Random, indent: int, depth: int, anchors: list[str], in_list: bool = False) -> str:
    """What stands behind "key:", with its newline."""
    shape = generator.random()
    anchor = ""
    if generator.random() < 0.12:
        anchor = f" &n{len(anchors)}"
    if shape < 0.3 or depth > 3:
        out = f"{anchor} {generator.choice(SCALARS)}{generator.choice(['', ' # c'])}"
    elif shape < 0.42:
        out = f"{anchor} {quoted(generator, generator.choice(SCALARS))}"
    elif shape < 0.52:
        out = f"{anchor} {block(generator, indent, in_list)}"
    elif shape < 0.6:
        out = f"{anchor} {flow(generator, 0)}"
    elif shape < 0.66 and anchors:
        return f" *{generator.choice(anchors)}\n"
    elif shape < 0.7:
        out = f"{anchor} a plain text\n{' ' * (indent + 2)}{generator.choice(['on two lines', '', 'b: c', '# d'])}"
    elif shape < 0.73:
        out = f" {generator.choice(['!!str', '!!int', '!x', '!!float'])} {generator.choice(SCALARS)}"
    elif shape < 0.85:
        items = [f"{' ' * indent}{generator.choice(['', '  '])}-{anything(generator, indent + 4, depth + 1, anchors, True)}"
                 for _ in range(generator.randrange(1, 4))]
        out = f"{anchor}\n" + "".join(items).rstrip("\n")
    else:
        out = f"{anchor}\n" + mapping(generator, indent + generator.choice([1, 2, 4]), depth + 1, anchors).rstrip("\n")
    if anchor:
        anchors.append(anchor.strip(" &"))
    return out + "\n"


def mapping(generator: random.Random, indent: int, depth: int, anchors: list[str]) -> str:
    out = ""
    names = generator.sample(KEYS, generator.randrange(1, 5))
    for name in names:
        key = quoted(generator, name) if generator.random() < 0.1 else name
        if generator.random() < 0.08 and anchors:
            key, value = "<<", generator.choice([f" *{generator.choice(anchors)}\n", f" [*{generator.choice(anchors)}, {{m: 1}}]\n", " {a: 1, z: 2}\n"])
        else:
            value = anything(generator, indent, depth, anchors)
        out += " " * indent + key + ":" + value
        if generator.random() < 0.05:
            out += generator.choice(["\n", "# a remark\n", " " * indent + "# another\n"])
    return out


def document(seed: int) -> str:
    generator = random.Random(f"yaml {seed}")
    text = generator.choice(["", "", "---\n", "# head\n", "%YAML 1.1\n---\n"]) + mapping(generator, 0, 0, [])
    text += generator.choice(["", "", "", "...\n", "---\n", "..."])
    if generator.random() < 0.3:
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(text) + 1)
            text = text[:at] + generator.choice(["", " ", "\n", "-", ":", ": ", "'", '"', "#", "\t", "{", "]", "&", "*", "\r\n", "|"]) + text[at + generator.randrange(2):]
    return text


def expected(value) -> object:
    if value is None:
        return None
    if isinstance(value, dict):
        return {"map": sorted(([expected(key), expected(each)] for key, each in value.items()), key=repr)}
    if isinstance(value, (list, tuple)):
        return [expected(each) for each in value]
    return {KINDS.get(type(value), "text"): str(value)}


def ours(value) -> object:
    if isinstance(value, dict) and "map" in value:
        return {"map": sorted(([ours(key), ours(each)] for key, each in value["map"]), key=repr)}
    return [ours(each) for each in value] if isinstance(value, list) else value


class Loader(yaml.SafeLoader):
    """Values that no key of Azure ML's takes stay texts: dates, and what is no finite number."""

    def construct_yaml_float(self, node):
        value = super().construct_yaml_float(node)
        return value if abs(value) < float("inf") else node.value


Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_yaml_float)
Loader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)
Loader.add_constructor("tag:yaml.org,2002:merge", yaml.SafeLoader.construct_yaml_str)
Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)

# What a job file has no use for, and what aml-run says of it.
OUR_OWN = ["is given a second time", "has no use in a job file", "a key must be a plain word", "a merge key (<<) takes",
           "this is not a map", "is empty", "a second document begins", "this is not UTF-8 text", "a NUL character", "levels deep",
           "an alias refers to a value that contains it", "indented by a tab", "has other characters than letters, digits, _ and -"]
NOT_YAML = "this is not YAML"  # of what PyYAML takes yaml-cpp refuses little: a ? without a blank, what begins on a wrong column


def read_all(texts: list[str]) -> list[dict]:
    data = b"".join(b"%d\n%s" % (len(each.encode()), each.encode()) for each in texts)
    done = subprocess.run([READER], input=data, capture_output=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def difference(text: str, got: dict) -> str:
    try:
        wanted = expected(yaml.load(text, Loader))
    except RecursionError:
        return "" if "error" in got else "it holds itself"
    except (yaml.YAMLError, ValueError, IndexError):
        return ""  # on Azure ML such a file does not get as far as a job
    if "error" in got:
        return "" if any(each in got["error"] for each in [*OUR_OWN, NOT_YAML]) else f"we refuse it: {got['error']}"
    return "" if ours(got["value"]) == wanted else f"{wanted}\n became {ours(got['value'])}"


def is_yaml(text: str) -> bool:
    try:
        return yaml.load(text, Loader) is not None
    except (yaml.YAMLError, ValueError, IndexError, RecursionError):
        return False


def test_random_files_mean_what_pyyaml_reads():
    texts = [document(seed) for seed in range(FILES)]
    answers = read_all(texts)
    wrong = [(seed, text, why) for seed, (text, got) in enumerate(zip(texts, answers, strict=True)) if (why := difference(text, got))]
    shown = "\n".join(f"--- {seed}\n{text}\n=== {why}" for seed, text, why in wrong[:5])
    assert not wrong, f"{len(wrong)} of {len(texts)} differ:\n{shown}"
    assert sum("value" in got for got in answers) > FILES / 4
    good = [got for text, got in zip(texts, answers, strict=True) if is_yaml(text)]
    assert sum(NOT_YAML in got.get("error", "") for got in good) <= len(good) / 100


def test_every_scalar_alone():
    texts = [f"k: {each}\n" for each in SCALARS] + [f"k: [{each}]\n" for each in SCALARS] + [f"k: !!str {each}\n" for each in SCALARS]
    wrong = [(text, why) for text, got in zip(texts, read_all(texts), strict=True) if (why := difference(text, got))]
    assert not wrong


@pytest.mark.parametrize("written, put_in", [
    ("010", "8"), ("0x1F", "31"), ("1_000", "1000"), ("1:30", "90"), ("yes", "True"), ("off", "False"), ("tRue", "tRue"), ("y", "y"),
    ("1e-3", "1e-3"), ("1.0e-4", "0.0001"), ("1.0E+4", "10000.0"), ("0.0010", "0.001"), (".5", "0.5"), ("+5", "5"), ("-010", "-8"),
    ("09", "09"), ("1.50", "1.5"), ("1_0.5_0", "10.5"), ("190:20:30", "685230"), ("12e03", "12e03"), ("2020-1-1", "2020-1-1"),
    ("'010'", "010"), ("!!str 010", "010"), ("100000000000000000000", "100000000000000000000"), ("0.00001", "1e-05"),
])
def test_a_value_becomes_the_text_that_azure_ml_puts_into_the_command(aml_run, job, written, put_in):
    """As azure-ai-ml 1.35.2 does it: load_job(), then the value of the literal that it sends."""
    path = job(f"command: echo ${{{{inputs.x}}}}\ninputs:\n  x: {written}\n  inner: {{type: string, value: {written}}}\n"
               f"environment_variables:\n  A: {written}\n")
    script = aml_run.good("--dry-run", path).text
    assert f"command='echo {put_in}'" in script and f"export A={put_in}\n" in script


def test_counts_are_read_as_numbers(aml_run, job):
    script = aml_run.good("--dry-run", job("command: a\nresources: {instance_count: 0b10}\nlimits: {timeout: 1:30}\n"
                                           "distribution: {type: pytorch, process_count_per_instance: 010}\n")).text
    assert "#SBATCH --nodes=2\n" in script and "--ntasks-per-node=8\n" in script and "--time=00:01:30\n" in script


def test_names_and_commands_stay_texts(aml_run, job):
    script = aml_run.good("--dry-run", job("command: yes\ndisplay_name: 010\ntags: {version: 1.10}\n")).text
    assert "command=yes" in script and "--job-name=010\n" in script and "version=1.10" in script


@pytest.mark.parametrize("text, said", [
    ("command: !!binary aGk=", "job.yml:1:10: the tag !!binary has no use in a job file: leave it out"),
    ("command: !x a", "the tag !x has no use in a job file"),
    ("command: a\ninputs: !!omap [a: 1]", "the tag !!omap has no use in a job file"),
    ("command: &a: b", "the anchor 'a:' has other characters than letters, digits, _ and -"),
])
def test_what_a_job_file_has_no_use_for(aml_run, job, text, said):
    assert said in aml_run.refusal(USAGE, "--dry-run", job(text))
