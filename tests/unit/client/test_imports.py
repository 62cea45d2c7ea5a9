"""What `import sarit` and the names of the client import, in a process that has imported nothing before."""

from __future__ import annotations

import ast
import subprocess
import sys

IMPORTED = """
import sys, typing, __future__
before = set(sys.modules)
import sarit
print(sorted(set(sys.modules) - before))
for name in sarit.__all__:
    getattr(sarit, name)
import sarit.client.aio
print(sorted(set(sys.modules) - before))
"""
USED = """
import sys
import sarit.client.aio, sarit.client.blocking.connection
print([name for name in sys.modules if name.startswith("sarit.client.structures")])
"""
# What `pip install` brings with a client, as modules.
CLIENT = {"google", "h2", "hpack", "hyperframe", "mmh3"}


def test_import_loads_the_package_alone_and_its_names_no_extra():
    said = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout
    first, with_names = map(ast.literal_eval, said.splitlines())
    assert first == ["sarit"]
    tops = {name.partition(".")[0] for name in with_names}
    # Extensions of these packages are modules of their own, with an underscore.
    assert {name for name in tops - sys.stdlib_module_names if name[0] != "_"} == {"sarit"} | CLIENT
    packages = {"admin", "cli", "controller", "log", "process", "serializers"}
    assert not {f"sarit.{name}" for name in packages} & set(with_names)


def test_client_without_structures_does_not_import_them():
    said = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
