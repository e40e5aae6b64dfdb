"""The modules of the package import each other in one direction only, also for types."""

from __future__ import annotations

import ast

from conftest import PACKAGE

MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path for path in PACKAGE.glob("amldist*/**/*.py")}


def imported_by(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{each.name}") in MODULES else node.module for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & set(MODULES) - {module}


def test_no_module_imports_itself_by_way_of_others():
    graph = {module: imported_by(module) for module in MODULES}
    assert len(graph) > 20 and graph["amldist._world"], graph
    while leaves := {module for module, others in graph.items() if not others & set(graph)}:
        graph = {module: others for module, others in graph.items() if module not in leaves}
    assert not graph, f"a circle among {sorted(graph)}"
