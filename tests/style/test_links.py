"""What documents and manual pages point to is there: files, headings, pages."""

import functools
import pathlib
import re

import pytest
import tree

DOCUMENTS = [file for file in tree.files() if file.suffix == ".md"]
MAN = tree.ROOT / "docs/man"
PAGES = sorted(path.name for path in MAN.iterdir())


def without_code(text: str) -> str:
    """Commands and snippets are no prose: brackets in them are no links, and `#` begins no heading."""
    return re.sub(r"^( *)(```|~~~).*?^\1\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """Targets of [text](target), ![text](target) and [label]: target."""
    prose = re.sub(r"`[^`\n]*`", "", without_code(text))
    return [*re.findall(r"\]\(\s*<?([^)\s>]+)", prose), *re.findall(r"^\[[^]]+\]:\s*(\S+)", prose, re.MULTILINE)]


@functools.cache
def anchors(file: pathlib.Path) -> frozenset[str]:
    """Of the headings, as GitHub makes them: small letters, no punctuation, hyphens for spaces, -1, -2 for repeated ones."""
    text = without_code((tree.ROOT / file).read_text())
    found: dict[str, int] = {}
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", text, re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        number = found[slug] = found.get(slug, -1) + 1
        names.add(f"{slug}-{number}" if number else slug)
    return frozenset(names)


def problem(document: pathlib.Path, link: str) -> str | None:
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return None
    path, _, anchor = link.partition("#")
    target = (tree.ROOT / document.parent / path).resolve() if path else tree.ROOT / document
    if not target.is_relative_to(tree.ROOT) or not target.exists():
        return f"{link}: no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target.relative_to(tree.ROOT)):
        return f"{link}: no such heading in {target.relative_to(tree.ROOT)}"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_a_document_s_links_lead_somewhere(document):
    found = [problem(document, link) for link in links((tree.ROOT / document).read_text())]
    assert not [each for each in found if each]


def named() -> set[tuple[str, str]]:
    """What `man` finds of ours: pages, and the commands and functions in their NAME."""
    found = {tuple(page.rsplit(".", 1)) for page in PAGES}
    for page in PAGES:
        head = (MAN / page).read_text().partition(".Sh SYNOPSIS")[0]
        found |= {(name, page[-1]) for name in re.findall(r"^\.Nm ([\w-]+)", head, re.MULTILINE)}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_manual_page_refers_to_pages_that_exist(page):
    referred = re.findall(r"^\.(?:It )?Xr (\S+) (\d)", (MAN / page).read_text(), re.MULTILINE)
    ours = {each for each in referred if re.match(r"(aml|amldist|aml-.*|aml_.*|amldist_.*|spank_aml.*)$", each[0])}
    assert not ours - named()


def test_links_and_headings_are_read_as_they_are_shown():
    text = "# A `b`, [c](d.md) & e\n## F\n```\n# no\n[x](y)\n```\n## F\n[g](h.md#i) ![j](k.svg) `[l](m)`\n[n]: o.md\n"
    assert links(text) == ["d.md", "h.md#i", "k.svg", "o.md"]
