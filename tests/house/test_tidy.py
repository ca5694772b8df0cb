"""The repository keeps its own rules; and each rule sees the fault that it is for."""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.house import _tidy
from tests.house._files import PACKAGES, files, module_name, python_files, text, tree

# Written by people; the rest (locks, rendered notebooks, the licence, data) is made or given.
_WRITTEN = {".py", ".toml", ".md", ".css", ".js", ".j2", ".html", ".cfg", ""}
_GIVEN = {Path("LICENSE")}
_BY_TREE = (_tidy.long_functions, _tidy.skips_without_reason, _tidy.vague_names)
_SHIPPED = Path("engine/http/docs/swagger-ui")  # as its authors publish it, with its licences


def _written() -> list[Path]:
    return [
        path
        for path in files()
        if path.suffix in _WRITTEN and path not in _GIVEN and path.parent != _SHIPPED
    ]


def _none(complaints: list[str]) -> None:
    """Fail with a line a complaint."""
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def _complaints(
    paths: list[Path], rule: Callable[[str], Iterator[str]] | Callable[[ast.Module], Iterator[str]]
) -> list[str]:
    by_tree = rule in _BY_TREE
    source: Callable[[Path], object] = tree if by_tree else text
    return [f"{path}: {line}" for path in paths for line in rule(source(path))]  # type: ignore[arg-type] # reason: each rule gets what it asks for


def test_written_files_have_no_banned_word() -> None:
    _none(_complaints(_written(), _tidy.banned_words))


def test_code_and_pages_keep_to_the_line() -> None:
    # A TOML table's sentence is one string, and a string is one line there.
    broken = [path for path in _written() if path.suffix in {".py", ".md", ""}]
    _none(_complaints(broken, _tidy.long_lines))


@pytest.mark.parametrize(
    "rule",
    [
        _tidy.waivers_without_reason,
        _tidy.long_functions,
        _tidy.skips_without_reason,
    ],
    ids=lambda r: r.__name__,
)
def test_python_files_are_tidy(rule: Callable[[str], Iterator[str]]) -> None:
    _none(_complaints(python_files(), rule))


def test_variables_name_what_they_hold() -> None:
    paths = [path for path in python_files() if path.parts[0] in PACKAGES]
    assert len(paths) > 150
    _none(_complaints(paths, _tidy.vague_names))


def test_locks_and_data_name_no_machine_or_registry() -> None:
    made = [p for p in files() if p.suffix in {".lock", ".txt", ".json", ".ipynb", ".yml", ".yaml"}]
    _none(_complaints(made, _tidy.banned_words))


def _imports() -> dict[str, set[str]]:
    """Return the modules of the packages, each with those that it imports at run time."""
    named = {module_name(path): path for path in python_files(*PACKAGES)}
    return {
        name: _tidy.imported_at_run_time(tree(path), named) - {name} for name, path in named.items()
    }


def test_no_modules_import_one_another_in_a_circle() -> None:
    circles = _tidy.import_circles(_imports())
    _none([f"import circle: {', '.join(sorted(circle))}" for circle in circles])


def test_a_planted_circle_is_found() -> None:
    lazy = "def f():\n    import b\n"
    for_types = "if TYPE_CHECKING:\n    import b\n"
    files = {"a": lazy, "b": "from c import x\n", "c": "import a\n", "d": "import a\n"}
    imports = {
        name: _tidy.imported_at_run_time(ast.parse(text), files) for name, text in files.items()
    }
    assert list(_tidy.import_circles(imports)) == [{"a", "b", "c"}]
    imports["a"] = _tidy.imported_at_run_time(ast.parse(for_types), files)
    assert list(_tidy.import_circles(imports)) == []


def test_every_module_is_imported_somewhere() -> None:
    imported = {name for path in python_files() for name in _tidy.imported_names(tree(path))}
    everything = "\n".join(text(path) for path in files() if path.suffix in {".py", ".toml"})
    dead = [
        str(path)
        for path in python_files(*PACKAGES, "tests")
        if not _has_a_use_of_its_own(path)
        and module_name(path) not in imported
        and f'"{module_name(path)}' not in everything
        and not _is_discovered(path)
    ]
    _none([f"{path}: nothing imports this module" for path in dead])


_KEPT: Final = {
    "batch_lines": "writes what `read_batch` reads",
    "parse_size_bytes": "reads what `format_size` writes",
}
_BY_NAME: Final = re.compile(r"pytest_\w+|(add|run)_\w+|\w+_(xml|json)")
"""Found by a name that code puts together: hooks, commands, forms of a report."""


def test_every_name_that_a_module_offers_is_used() -> None:
    """A package's `__init__` that hands a name on does not use it, nor does a test."""
    used = {
        name
        for path in python_files(*PACKAGES, "notebooks")
        for name in _tidy.used_names(tree(path), hands_on=path.name == "__init__.py")
    }
    offered_to_all = {name for each in PACKAGES for name in importlib.import_module(each).__all__}
    unused = [
        f"{path}: nothing uses {name}"
        for path in python_files(*PACKAGES)
        if path.name not in {"__init__.py", "__main__.py"}
        for name in _tidy.offered_names(tree(path))
        if name not in used | offered_to_all | _KEPT.keys() and not _BY_NAME.fullmatch(name)
    ]
    _none(unused)
    assert not used & _KEPT.keys(), "these are used after all"


def test_neither_its_own_class_nor_a_package_uses_a_name() -> None:
    own = ast.parse("class A:\n    def again(self) -> A: return A()")
    assert "A" not in set(_tidy.used_names(own, hands_on=False))
    hands_on = ast.parse("from a import A\n__all__ = ['A']")
    assert "A" not in set(_tidy.used_names(hands_on, hands_on=True))
    assert "A" in set(_tidy.used_names(hands_on, hands_on=False))


def test_a_module_offers_what_it_defines_without_an_underscore() -> None:
    text = "A: int = 1\n_B = 2\nC, D = range(2)\ndef e() -> None: ...\nclass F: ...\n"
    assert list(_tidy.offered_names(ast.parse(text))) == ["A", "e", "F"]
    assert list(_tidy.offered_names(ast.parse(text + "__all__ = ['F']"))) == ["F"]
    assert list(_tidy.offered_names(ast.parse("@check\ndef e() -> None: ..."))) == []


def _has_a_use_of_its_own(path: Path) -> bool:
    name = path.stem
    return name in {"__init__", "__main__", "conftest"} or name.startswith(("test_", "bench_"))


def _is_discovered(path: Path) -> bool:
    """Whether the folder's `__init__` imports whatever lies in it, or some module by its name."""
    package = path.with_name("__init__.py")
    if package in files() and "iter_modules" in text(package):
        return True
    folder = path.parent.as_posix().replace("/", ".")
    importers = [text(each) for each in python_files(*PACKAGES)]
    return any(
        ("import_module(f" in each and f'"{path.stem}"' in each)
        or ("iter_modules" in each and f'"{folder}"' in each)
        for each in importers
    )


def test_every_data_file_is_named_by_code() -> None:
    code = "\n".join(text(path) for path in python_files(*PACKAGES))
    for path in files():
        if path.parts[0] not in PACKAGES or path.suffix == ".py" or path.name == "py.typed":
            continue
        if path.parent == _SHIPPED and path.suffix in {"", ".txt"}:  # licences
            continue
        names = {path.name, path.stem, f"*{path.suffix}", f'"{path.suffix}"'}
        assert any(name in code for name in names), f"{path}: no module names this file"


def test_all_names_exist_and_are_what_the_package_offers() -> None:
    for path in python_files(*PACKAGES):
        if path.name == "__main__.py" or not re.search(r"^__all__", text(path), re.MULTILINE):
            continue
        module = importlib.import_module(module_name(path))
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert missing == [], f"{path}: __all__ names what is not there"
        assert len(set(module.__all__)) == len(module.__all__), f"{path}: a name twice in __all__"


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (_tidy.long_lines, "word " * 21),
        (_tidy.banned_words, "# TO" + "DO later"),
        (_tidy.banned_words, "see https://py" + "pi.org/simple"),
        (_tidy.banned_words, "pip --index" + "-url x"),
        (_tidy.banned_words, 'open("/' + 'work/data")'),
        (_tidy.waivers_without_reason, "x = 1  # no" + "qa: E501"),
        (_tidy.waivers_without_reason, "x = 1  # type" + ": ignore[x]"),
        (_tidy.long_functions, "def f() -> None:\n" + "    x = 1\n" * 70),
        (_tidy.skips_without_reason, "@pytest.mark.skip\ndef test_x() -> None: ..."),
        (_tidy.skips_without_reason, "@pytest.mark.skipif(True)\ndef test_x() -> None: ..."),
        (_tidy.skips_without_reason, "pytest.skip()"),
        (_tidy.vague_names, "found = 1"),
        (_tidy.vague_names, "def f(told: int) -> None: ..."),
        (_tidy.vague_names, "for each in (): ..."),
        (_tidy.vague_names, "class C:\n    says: str"),
    ],
)
def test_a_rule_sees_its_fault(rule: Callable[[object], Iterator[str]], fault: str) -> None:
    by_tree = rule in _BY_TREE
    assert len(list(rule(ast.parse(fault) if by_tree else fault))) == 1


@pytest.mark.parametrize(
    ("rule", "fine"),
    [
        (_tidy.long_lines, "| " + "cell | " * 20),
        (_tidy.long_lines, '    "' + "x" * 120 + '"'),
        (_tidy.long_lines, "x = 1  # no" + "qa: X # reason: " + "word " * 20),
        (_tidy.banned_words, "GET /homework/ and 4111XX" + "XX1111"),
        (_tidy.waivers_without_reason, "x = 1  # no" + "qa: E501 # reason: a table"),
        (_tidy.skips_without_reason, 'pytest.skip("no browser here")'),
        (_tidy.skips_without_reason, 'pytest.mark.xfail(reason="known")'),
        (_tidy.vague_names, "lane = study(told=print).found"),
    ],
)
def test_a_rule_leaves_the_rest_alone(rule: Callable[[object], Iterator[str]], fine: str) -> None:
    by_tree = rule in _BY_TREE
    assert list(rule(ast.parse(fine) if by_tree else fine)) == []
