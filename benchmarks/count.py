"""Prints lines of code by folder: `python -m benchmarks.count`. Blank lines, comments and docstrings do not count."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from benchmarks.performance import ROOT

GROUPS = {"production": ("rbs_tf", "networks", "agents"), "tests": ("tests",), "benchmarks": ("benchmarks",)}
_NO_CODE = {
    *(tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def lines_of_code(text: str) -> int:
    """How many lines of a Python file hold more than a comment or a docstring."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            code -= {*range(docstring.lineno, (docstring.end_lineno or 0) + 1)}
    return len(code)


def main() -> None:
    for group, folders in GROUPS.items():
        rooms: Counter[str] = Counter()
        for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
            rooms["/".join(path.parent.relative_to(ROOT).parts[:2])] += lines_of_code(path.read_text())
        print(f"{group}: {rooms.total():,}")
        for room, count in sorted(rooms.items()):
            print(f"  {room:24} {count:6,}")


if __name__ == "__main__":
    main()
