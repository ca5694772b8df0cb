"""The tidy rules: what must hold of every file, as functions from text to complaints.

Not what ruff and mypy see already. Each rule yields `line N: what is wrong`, so that the test of
the repository and the tests of the rules (planted faults) read the same functions.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping

MAX_LINE = 100
MAX_FUNCTION_LINES = 70

# Written in pieces, so that this file may be searched like any other.
_BANNED = {
    "an unfinished spot": r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b",
    "a package registry's address": r"py" + r"pi\.org|python" + r"hosted|registry\.npm" + r"js",
    "an index option": r"--(?:extra-)?index" + r"-url|--find" + r"-links",
    "a path of one machine": r"(?<![\w.])/(?:work|root|opt/" + r"pypi|opt/wheels|tmp)/",
}
_WAIVER = re.compile(r"#\s*(?:noqa|type:\s*ignore|pragma:|fmt:\s*off|ruff:)")
_REASON = re.compile(r"#\s*reason:\s*\S")
VAGUE_NAMES = frozenset({"found", "one", "each", "told", "shown", "says", "kept"})
"""Names that would fit anything: a name is the noun of what it holds."""
_SKIPS = ("skip", "skipif", "xfail", "importorskip")


def long_lines(text: str) -> Iterator[str]:
    """Lines above the limit.

    A table row, a line of one unbreakable word, and the waiver at a line's end may be longer.
    """
    for number, full in enumerate(text.splitlines(), 1):
        line = _WAIVER.split(full)[0].rstrip()
        breakable = len(line.strip().lstrip("-#>*\"' ").split()) > 1
        if len(line) > MAX_LINE and breakable and not line.lstrip().startswith("|"):
            yield f"line {number}: {len(line)} characters must be at most {MAX_LINE}"


def banned_words(text: str) -> Iterator[str]:
    """Unfinished spots, registry addresses, index options and machine paths."""
    for number, line in enumerate(text.splitlines(), 1):
        for name, pattern in _BANNED.items():
            found = re.search(pattern, line)
            if found:
                yield f"line {number}: {found.group()!r} is {name}"


def waivers_without_reason(text: str) -> Iterator[str]:
    """Lint and type exceptions that do not say why."""
    for number, line in enumerate(text.splitlines(), 1):
        if _WAIVER.search(line) and not _REASON.search(line):
            yield f"line {number}: an exception must carry `# reason: …`"


def long_functions(tree: ast.Module) -> Iterator[str]:
    """Functions above the limit, docstring included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                limit = f"must have at most {MAX_FUNCTION_LINES} lines"
                yield f"line {node.lineno}: {node.name} has {lines} lines, {limit}"


def vague_names(tree: ast.Module) -> Iterator[str]:
    """Yield the variables, parameters and functions whose name would fit anything."""
    for node in ast.walk(tree):
        name = getattr(node, "name", None) or getattr(node, "arg", None)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.keyword):
            continue  # the name is the callee's
        if name in VAGUE_NAMES:
            yield f"{getattr(node, 'lineno', 0)}: {name} names nothing; say what it holds"


def skips_without_reason(tree: ast.Module) -> Iterator[str]:
    """Tests that are skipped or expected to fail without a word why."""
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in _SKIPS:
            continue
        is_mark = isinstance(node.value, ast.Attribute) and node.value.attr == "mark"
        is_function = isinstance(node.value, ast.Name) and node.value.id == "pytest"
        if not (is_mark or is_function):
            continue
        call = called.get(id(node))
        has_text = call is not None and bool(call.args) and not is_mark
        has_reason = call is not None and any(word.arg == "reason" for word in call.keywords)
        if not (has_text or has_reason):
            yield f"line {node.lineno}: {node.attr} must give a reason"


def offered_names(module: ast.Module) -> Iterator[str]:
    """The names that a module offers: its `__all__`, or what it defines without an underscore.

    What a decorator registers is used by that; the words of a row are named all or none.
    """
    defined: list[str] = []
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)
            return
        if isinstance(node, ast.ClassDef):
            defined.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined += [node.name] * (not node.decorator_list)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            defined += [target.id] if isinstance(target, ast.Name) else []
    yield from (name for name in defined if not name.startswith("_"))


def used_names(module: ast.Module, *, hands_on: bool) -> Iterator[str]:
    """The names that a module reads or imports, but for those inside their own definition.

    hands_on: whether its imports are for others.
    """
    for top in module.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id != getattr(top, "name", None):
                    yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.ImportFrom) and not hands_on:
                yield from (alias.name for alias in node.names)


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Every dotted name that an import statement of the file could mean as a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def imported_at_run_time(tree: ast.Module, modules: Collection[str]) -> set[str]:
    """Return which of the modules a file imports, in functions too; not for type checkers alone."""
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for part in node.body
        for inner in ast.walk(part)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else node.module for name in names)
    return found & set(modules)


def import_circles(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Yield each set of modules that import one another, directly or by way of others."""
    reached = {module: _reached(imports, module) for module in imports}
    seen: set[str] = set()
    for module in sorted(imports):
        circle = {other for other in reached[module] if module in reached[other]}
        if circle and module not in seen:
            seen |= circle
            yield circle


def _reached(imports: Mapping[str, set[str]], module: str) -> set[str]:
    """Return the modules that this one imports, directly or by way of others."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        fresh = imports[ahead.pop()] - found
        found |= fresh
        ahead.extend(fresh)
    return found
