"""The commands in the documents: README files and guides in Markdown, the manual pages in mdoc."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```(console|bash|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass
class Command:
    document: str  # path in the tree
    text: str  # as typed, without the prompt and a comment behind it; a block of bash as a whole
    shown: list[str] = dataclasses.field(default_factory=list)  # lines of output that the document shows

    def __str__(self) -> str:
        return f"{self.document}: {self.text.splitlines()[-1 if self.is_script else 0]}"

    @property
    def is_script(self) -> bool:
        return self.text.startswith("#!")


def commands() -> list[Command]:
    found = [each for path in tracked("*.md") for each in in_markdown(path)]
    return found + [each for path in tracked("docs/man/*") for each in in_manual_page(path)]


def tracked(pattern: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return listed.split()


def in_markdown(path: str) -> list[Command]:
    found = []
    for kind, body in FENCE.findall((ROOT / path).read_text()):
        found += session(path, body.splitlines()) if kind == "console" else [Command(path, body.strip())]
    return found


def in_manual_page(path: str) -> list[Command]:
    """Lines that begin with a prompt, in `.Dl` or in a display; those after them in a display belong to them."""
    text = (ROOT / path).read_text().replace(r"\e", "\\").replace(r"\(dq", '"')
    found = [command for line in re.findall(r"^\.Dl (\$ .*)$", text, re.MULTILINE) for command in session(path, [line])]
    for display in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", text, re.MULTILINE | re.DOTALL):
        found += session(path, display.splitlines())
    return found


def session(path: str, lines: list[str]) -> list[Command]:
    """Commands begin with a prompt; a line that ends in a backslash or a pipe goes on; the rest is what they print."""
    found: list[Command] = []
    goes_on = False
    for line in lines:
        if line.startswith("$ "):
            found.append(Command(path, re.sub(r"\s{2,}# .*$", "", line[2:])))
        elif goes_on:
            found[-1].text += "\n" + line
        elif found and line:
            found[-1].shown.append(line)
        goes_on = bool(found) and not found[-1].shown and line.endswith(("\\", "|"))
    return found
