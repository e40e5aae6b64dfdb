"""Every shell script in the tree passes shellcheck."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def shell_scripts() -> list[str]:
    """Tracked or new files that begin with a shell's shebang, or end in .sh."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    scripts = []
    for name in listed:
        path = ROOT / name
        if not path.is_file():
            continue
        with path.open("rb") as file:
            first = file.readline(80)
        if name.endswith(".sh") or (first.startswith(b"#!") and (b"/bash" in first or b"/sh" in first)):
            scripts.append(name)
    return scripts


@pytest.mark.parametrize("script", shell_scripts())
def test_shellcheck(script):
    done = subprocess.run(["shellcheck", "--external-sources", "--source-path=SCRIPTDIR", script], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
