"""The files of the tree, for the checks of style."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".cpp", ".hpp", ".h", ".c", ".cu"}


def files() -> list[pathlib.Path]:
    """Tracked or new, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    return sorted({pathlib.Path(name) for name in listed if (ROOT / name).is_file()})


def code() -> list[pathlib.Path]:
    return [file for file in files() if file.suffix in CODE]


def plugstack_arguments() -> list[str]:
    """Every argument of the plugin in plugstack.conf; one that takes a partition ends in a dot."""
    text = (ROOT / "libdist/launch/site/site_policy.cpp").read_text()
    names = ["disabled"]
    for name, scope in re.findall(r'^ *\{"([a-z_]+)", Scope::(no|may|must)', text, re.MULTILINE):
        names += {"no": [name], "may": [name, f"{name}."], "must": [f"{name}."]}[scope]
    assert len(names) > 20
    return names
