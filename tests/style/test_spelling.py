"""codespell finds nothing. Words that are meant stand in .codespellrc."""

import subprocess

import tree


def test_codespell():
    done = subprocess.run(["codespell", *tree.files()], cwd=tree.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
