"""TOML with places: what a message names is where an editor would put the cursor."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.files import Document, parse_toml, path_text, read_toml, shown_value, to_toml

TEXT = """\
top = 1
a."b c".d = "x"
[table]
 list = [1, # one
   { z = 2, y.x = 3 }, ]
[[rows]]
q = 1.5
[[rows]]
"é" = "ä" # after
[rows.sub]
multi = \"\"\"
text\"\"\"
[[rows.deep]]
r = true
[[rows.deep]]
r = false
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("top",), (1, 1), (1, 7)),
        (("a", "b c"), (2, 3), (2, 3)),
        (("a", "b c", "d"), (2, 9), (2, 13)),
        (("table",), (3, 2), (3, 1)),
        (("table", "list"), (4, 2), (4, 9)),
        (("table", "list", 0), (4, 10), (4, 10)),
        (("table", "list", 1, "z"), (5, 6), (5, 10)),
        (("table", "list", 1, "y", "x"), (5, 15), (5, 19)),
        (("rows",), (6, 3), (6, 1)),
        (("rows", 0), (6, 1), (6, 1)),
        (("rows", 0, "q"), (7, 1), (7, 5)),
        (("rows", 1), (8, 1), (8, 1)),
        (("rows", 1, "é"), (9, 1), (9, 7)),
        (("rows", 1, "sub", "multi"), (11, 1), (11, 9)),
        (("rows", 1, "deep", 0, "r"), (14, 1), (14, 5)),
        (("rows", 1, "deep", 1, "r"), (16, 1), (16, 5)),
    ],
)
def test_every_key_and_value_has_its_place(
    path: tuple[str | int, ...], key: tuple[int, int], value: tuple[int, int]
) -> None:
    document = parse_toml(TEXT, "x.toml")
    document.spot(*path)  # it is there
    assert document.position(path) == value
    assert document.key_position(path) == key


def test_what_is_not_there_is_placed_at_the_table_that_lacks_it() -> None:
    document = parse_toml(TEXT, "x.toml")
    assert document.position(("rows", 1, "missing")) == (8, 1)
    assert document.position(("missing",)) == (1, 1)


KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=5)


def _paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += _paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += _paths(item, (*path, index))
    return found


@given(value=TABLES)
def test_any_table_written_reads_back_and_every_part_of_it_has_a_place(
    value: dict[str, object],
) -> None:
    document = parse_toml(to_toml(value), "x.toml")
    assert document.value == value
    located, _ = document._located
    missing = [path for path in _paths(value) if path not in located]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a = 1\nb 2",
            "x.toml:2:3: the text must be TOML; expected '=' after a key in a key/value pair",
        ),
        ("a = ", "x.toml:1:5: the text must be TOML; invalid value"),
        ("a = 1\na = 2", "x.toml:2:6: the text must be TOML; cannot overwrite a value"),
        ('a = """\n\nb', "x.toml:3:2: the text must be TOML; unterminated string"),
    ],
)
def test_a_syntax_error_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_toml(text, "x.toml")
    assert str(caught.value) == message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_toml(tmp_path / "none.toml")
    assert str(caught.value) == f"{tmp_path / 'none.toml'}: no such file"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_toml(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("a = 1")
    file.chmod(0)
    with pytest.raises(InputError, match="cannot be read: permission denied"):
        read_toml(file)


def test_bytes_that_are_no_utf8_are_placed(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(InputError) as caught:
        read_toml(file)
    assert str(caught.value) == f"{file}:2:6: the file must be UTF-8 text"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 'x'\r\n")
    document = read_toml(file)
    assert document.value == {"a": 1, "b": "x"}
    assert document.position(("b",)) == (2, 5)
    assert document.folder == tmp_path


def test_values_of_a_program_have_no_place() -> None:
    document = Document({"rate": -3})
    assert document.position(("rate",)) is None
    with pytest.raises(InputError) as caught:
        document.spot("rate").fail("must be above 0")
    assert str(caught.value) == "rate = -3 must be above 0"


def test_a_secret_is_not_quoted() -> None:
    spot = parse_toml('key = "hush"', "x.toml").spot("key")
    with pytest.raises(InputError) as caught:
        spot.fail("must be a key", secret=True)
    assert str(caught.value) == "x.toml:1:7: key must be a key"
    assert "hush" not in repr(parse_toml('key = "hush"', "x.toml"))


def test_paths_and_values_are_shown_as_people_write_them() -> None:
    assert path_text(("a", 0, "b c", "d")) == 'a[0]."b c".d'
    assert shown_value("x" * 100) == '"' + "x" * 60 + '…"'
    assert [shown_value(v) for v in (True, 3, [], [1], {}, {"a": 1}, "a\nb")] == [
        "true",
        "3",
        "[]",
        "[…]",
        "{}",
        "{…}",
        '"a\\nb"',
    ]
