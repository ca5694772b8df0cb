"""A table read key by key: same kinds, same messages as forms."""

import pytest

from engine.errors import InputError
from engine.files import Rate, Section, parse_toml

TEXT = """\
name = "${WHO}"
count = 3
share = 0.5
flag = true
wait = "2s"
rate = "5/1s"
size = "1KB"
names = ["a"]
any = { x = [1] }
[sub]
inner = 1
[[rows]]
id = 1
[[rows]]
id = 2
"""


def test_every_kind_of_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "ada")
    section = Section(parse_toml(TEXT, "s.toml"))
    assert section.string("name", environment=True) == "ada"
    assert section.integer("count", minimum=1) == 3
    assert section.number("share", maximum=1) == 0.5
    assert section.boolean("flag") is True
    assert section.duration_ns("wait") == 2_000_000_000
    assert section.rate("rate") == Rate(5, 10**9)
    assert section.size_bytes("size") == 1_000
    assert section.strings("names") == ("a",)
    assert section.plain("any") == {"x": [1]}
    assert section.table("sub").integer("inner") == 1
    assert [row.integer("id") for row in section.tables("rows")] == [1, 2]
    assert section.string("absent", default=None) is None
    assert section.table("absent table").names() == ()
    assert section.tables("absent tables") == ()
    section.done()


def test_a_key_that_nobody_asked_for_is_refused() -> None:
    section = Section(parse_toml("count = 1\ncuont = 2", "s.toml"))
    section.integer("count")
    with pytest.raises(InputError) as caught:
        section.done()
    assert str(caught.value) == "s.toml:2:1: cuont is no known key; did you mean 'count'?"


def test_a_key_that_must_be_there_is_missed() -> None:
    section = Section(parse_toml("[[rows]]\n[[rows]]", "s.toml")).tables("rows")[1]
    with pytest.raises(InputError) as caught:
        section.integer("id")
    assert str(caught.value) == "s.toml:2:1: rows[1].id is missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count = 0", "s.toml:1:9: count = 0 must be at least 1"),
        ("count = 8", "s.toml:1:9: count = 8 must be at most 7"),
        ('count = "1"', 's.toml:1:9: count = "1" must be a whole number'),
    ],
)
def test_bounds_hold(text: str, message: str) -> None:
    section = Section(parse_toml(text, "s.toml"))
    with pytest.raises(InputError) as caught:
        section.integer("count", minimum=1, maximum=7)
    assert str(caught.value) == message


def test_a_bound_of_zero_is_a_bound() -> None:
    section = Section(parse_toml("count = 1", "s.toml"))
    with pytest.raises(InputError, match="must be at most 0"):
        section.integer("count", maximum=0)


def test_choices_and_own_rules() -> None:
    section = Section(parse_toml('kind = "tset"\nkey = "hush"', "s.toml"))
    with pytest.raises(InputError, match=r"did you mean 'test'\?$"):
        section.string("kind", choices=("test", "production"))
    with pytest.raises(InputError, match=r"^s\.toml:2:7: key must be longer$"):
        section.fail("key", "must be longer", secret=True)


def test_a_table_where_an_array_of_them_is_asked_for_shows_the_way() -> None:
    section = Section(parse_toml("[rows]", "s.toml"))
    with pytest.raises(InputError, match=r"must be an array of tables; write \[\[rows\]\]$"):
        section.tables("rows")
