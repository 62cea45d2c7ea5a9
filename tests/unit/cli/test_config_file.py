"""The file of options: which line each setting is in."""

import pytest

from sarit.cli.config_file import parse_config

TEXT = """\
# a comment = 1
host = "10.0.0.1"  # another

scaling-windows = [
    1, 2,
    # store-port = 9
    3, 4,
]
text = '''
[store]
memory = "1G"
'''
init.containers = 1
"quoted-key" = 7
[store]
memory = "4G"
  [controller]
  port = 9090
"""


def test_each_setting_has_its_table_and_the_line_it_begins_in():
    found = parse_config(TEXT, "f.toml")
    assert [(s.table, s.key, s.line) for s in found.settings] == [
        ("", "host", 2), ("", "scaling-windows", 4), ("", "text", 9), ("init", "containers", 13),
        ("", "quoted-key", 14),
        ("store", "memory", 16), ("controller", "port", 18),
    ]  # fmt: skip
    assert found.settings[1].value == [1, 2, 3, 4]
    assert found.tables == {"init": 13, "store": 15, "controller": 17}


def test_table_of_a_command_wins_over_the_top_and_dashes_are_underscores():
    found = parse_config('log_level = "info"\nport = 1\n[store]\nport = 2\n', "f.toml")
    assert {key: s.value for key, s in found.for_command("store").items()} == {"log-level": "info", "port": 2}
    assert found.for_command("controller")["port"].line == 2


def test_option_that_is_set_twice_is_named_with_both_lines():
    found = parse_config("store-port = 1\n\nstore_port = 2\n", "f.toml")
    assert found.repeated() == ["f.toml:3: store_port is the same option as store-port in line 1: keep one"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("host = ", 1), ("a = 1\nb = [1,\n", 3), ("a = 1\na = 2", 2), ("[store]\nport 1\n", 2), ('x = "', 1)],
)
def test_text_that_is_not_toml_is_refused_with_its_line(text, line):
    with pytest.raises(ValueError, match=rf"^f\.toml:{line}: this is not TOML: "):
        parse_config(text, "f.toml")


@pytest.mark.parametrize("text", ["\ufeffhost = 'a'", "host = 'a'\r\n", "host = 'a'"])
def test_byte_order_mark_and_line_ends_of_windows_are_accepted(text):
    assert parse_config(text, "f.toml").settings[0].value == "a"


def test_long_file_is_parsed_in_linear_time():
    found = parse_config("\n".join(f"key{number} = {number}" for number in range(5000)), "f.toml")
    assert found.settings[-1].line == 5000
