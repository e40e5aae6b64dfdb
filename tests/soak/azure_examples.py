#!/usr/bin/env python3
"""Azure's published job files through `aml-run FILE --dry-run`, as somebody would who has just fetched them:

    git clone https://github.com/Azure/azureml-examples
    tests/soak/azure_examples.py azureml-examples/cli/jobs

Where a message names a --set that mends it, that is given, with a file, a folder or a number of this script's. Each script is read
by `bash -n`, its command is filled in as the job would do it, and the commands of jobs and components are compared with a
substitution of its own, by PyYAML and a regular expression. Prints the table by type (docs/azure-ml.md) and all that differs."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
AML_RUN = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist")).parent / "aml-run"
PATHS = ("uri_folder", "mltable", "mlflow_model", "custom_model", "path")
REASON = re.compile(r"type \w+ is not supported|registered with Azure ML|which does not exist|its \$schema says '\w+'|a conda file")


def kind_of(tree: object) -> str:
    """The type that a file says, in words."""
    if not isinstance(tree, dict):
        return "no job"
    schema = re.search(r"/([\w-]+)\.(?:schema\.)?json", str(tree.get("$schema", "")))
    name, kind = schema.group(1).lower() if schema else "", str(tree.get("type", "")).lower()
    if "component" in name:
        return f"{kind or 'command'} component"
    if name.endswith("job"):
        return f"{name[:-3]} job"
    return f"{kind or 'command'} job" if not name and (kind or "command" in tree) else "no job"


def value_for(key: str, placeholder: str, tree: dict, folder: pathlib.Path) -> str:
    declared = (tree.get("inputs") or {}).get(key.split(".")[-1])
    kind = str(declared.get("type", "")).lower() if isinstance(declared, dict) else ""
    if placeholder == "FILE" or kind == "uri_file":
        return str(folder / "file")
    return str(folder) if placeholder == "FOLDER" or kind in PATHS else "3"


def ask(file: pathlib.Path, tree: object, folder: pathlib.Path) -> tuple[subprocess.CompletedProcess, dict[str, str]]:
    """aml-run's last answer, and the --set that led to it."""
    sets: dict[str, str] = {}
    while True:
        words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run([AML_RUN, file.name, "--dry-run", *words], cwd=file.parent, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)
        wish = re.search(r"--set (\S+)=(VALUE|FOLDER|FILE)", done.stderr)
        if done.returncode == 0 or wish is None or wish.group(1) in sets or not isinstance(tree, dict):
            return done, sets
        sets[wish.group(1)] = value_for(wish.group(1), wish.group(2), tree, folder)


def bash(script: str, *options: str) -> subprocess.CompletedProcess:
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    return subprocess.run(["bash", *options], input=script, capture_output=True, text=True, timeout=60, env=env, check=False)


def filled_in(script: str) -> subprocess.CompletedProcess | None:
    """The command that the job would run; None: its text has no values."""
    command = re.search(r"^command=\$\((.*?)\) \|\| exit$", script, re.M | re.S)
    if command is None:
        return None
    variables = re.findall(r"^(?:export )?AML_(?:OUTPUT_\w+|PARAMETER_\w+|TRIAL_FOLDER)=.*$", script, re.M)
    return bash("\n".join([*variables, f'printf %s "$({command.group(1)})"']))


def expected(tree: dict, file: pathlib.Path, sets: dict[str, str], script: str) -> str:
    """Azure's substitution, by other means than ours."""
    inputs = tree.get("inputs") or {}

    def value(match: re.Match) -> str:
        section, name = match.groups()
        if section == "outputs":
            line = re.search(rf"^AML_OUTPUT_{re.escape(name)}=.*$", script, re.M)
            return bash(f'{line.group(0)}\nprintf %s "$AML_OUTPUT_{name}"').stdout
        for key in (f"inputs.{name}.path", f"inputs.{name}"):
            if key in sets:
                return sets[key]
        declared = inputs[name]
        if not isinstance(declared, dict):
            return str(declared)
        text = str(declared.get("path", declared.get("default")))
        return text if "path" not in declared or re.match(r"\w+:", text) else str((file.parent / text).resolve())

    def optional(match: re.Match) -> str:
        names = re.findall(r"inputs\.(\w+)", match.group(1))
        return match.group(1) if all(f"inputs.{name}" in sets or "default" in inputs[name] for name in names) else ""

    text = re.sub(r"\$\[\[(.*?)\]\]", optional, tree["command"], flags=re.S)
    return re.sub(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}", value, text)


def judge(file: pathlib.Path, folder: pathlib.Path, counts: collections.Counter) -> tuple[str, str, list[str]]:
    """Type, outcome, and what is wrong."""
    try:
        tree = yaml.safe_load(file.read_text())
    except yaml.YAMLError:
        tree = None
    kind = kind_of(tree)
    done, sets = ask(file, tree, folder)
    if done.returncode != 0:
        sentence = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        known = REASON.search(sentence)
        return kind, f"refused: {known.group(0) if known else sentence}", []
    wrong = []
    for script in filter(str.strip, re.split(r"^# ---- .*\n", done.stdout, flags=re.M)):
        counts["scripts"] += 1
        checked = bash(script, "-n")
        wrong += [checked.stderr] * (checked.returncode != 0)
        command = filled_in(script)
        if command is None:
            continue
        counts["with values"] += 1
        if command.returncode != 0 or "${{" in command.stdout or "$[[" in command.stdout:
            wrong.append(f"not filled in: {command.stdout} {command.stderr}")
        elif kind in ("command job", "command component"):
            counts["compared"] += 1
            wanted = expected(tree, file, sets, script)
            if command.stdout.replace("/./", "/").split() != wanted.replace("/./", "/").split():
                wrong.append(f"wanted {wanted}\n  got {command.stdout}")
    return kind, "with --set" if sets else "as it is", wrong


def main() -> int:
    counts: collections.Counter = collections.Counter()
    table: collections.Counter = collections.Counter()
    differs = 0
    with tempfile.TemporaryDirectory(prefix="aml-dist-examples-") as name:
        folder = pathlib.Path(name)
        (folder / "file").touch()
        for file in sorted(pathlib.Path(sys.argv[1]).resolve().rglob("*.y*ml")):
            kind, outcome, wrong = judge(file, folder, counts)
            table[kind, outcome] += 1
            differs += len(wrong)
            for each in wrong:
                print(f"{file}: {each}", file=sys.stderr)
    for (kind, outcome), number in sorted(table.items()):
        print(f"{number:4} {kind}: {outcome}")
    print(f"{counts['scripts']} scripts, {counts['with values']} commands with values, {counts['compared']} of them compared, {differs} differ")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
