"""The wheel in empty environments, without Java: a client alone, a node, and what says that an extra is missing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).with_name("uv"))
CLIENT_BYTES = 60_000_000  # a client with all that it needs, installed
CLIENT_PACKAGES = 12
ZOOKEEPER = "zookeeper://127.0.0.1:1/c"
# A command of each kind that needs an extra -> the extra.
COMMANDS = {
    "standalone --data-dir data": "node",
    f"store --cluster {ZOOKEEPER} --machine a": "cluster",
    f"controller --cluster {ZOOKEEPER} --machine a": "cluster",
    f"cluster status --cluster {ZOOKEEPER}": "cluster",
    f"cluster init --cluster {ZOOKEEPER} --log bookkeeper://127.0.0.1:1/l --storage s3://abc/x": "cluster",
    "verify data": "node",
    "repair data": "node",
    "backup list s3://abc/x": "node",
    "restore s3://abc/x --data-dir data": "node",
    "doctor --data-dir data": "node",
    f"doctor --for store --cluster {ZOOKEEPER} --machine a": "cluster",
    "user add alice --users users --password-file password": "node",
    "tls dev-ca certificates": "tls",
    "export a/b a.parquet": "arrow",
    "import data a/b --as parquet": "arrow",
}
# Lines of Python that need an extra -> the extra.
CALLS = {
    "from sarit.client.reader.cursor import arrow_schema; arrow_schema()": "arrow",
    "import sarit; sarit.Envelope.parse_many([b''])": "arrow",
    "import sarit; sarit.Envelope.encode_many([b''])": "arrow",
    "import sarit.spark; sarit.spark.session()": "spark",
    "import pyspark_sarit": "spark",
    "from sarit.env.real import real_env; real_env(traces=1)": "traces",
}


def run(*command: object, code: int = 0, **options: object) -> str:
    """What it prints; of one that is to fail on standard error, too.  Raises AssertionError with its words."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=HANG_SECONDS, **options
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stdout + done.stderr


def installed(directory: Path, *arguments: object) -> Path:
    """The `bin` of a new environment with what the arguments name, at locked versions."""
    locked = directory.with_suffix(".txt")
    chosen = ["--locked", "--no-default-groups", "--all-extras", "--no-emit-project", "--no-hashes"]
    run(UV, "export", "--quiet", *chosen, "--output-file", locked, cwd=ROOT)
    run(UV, "venv", "--quiet", "--python", sys.executable, directory)
    python = directory / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", locked, *arguments)
    return directory / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", directory, ROOT)
    (built,) = directory.glob("sarit-*.whl")
    return built


@pytest.fixture(scope="module")
def client(wheel) -> Path:
    """An environment with the wheel and what it brings without an extra."""
    return installed(wheel.with_name("client"), wheel)


@pytest.fixture(scope="module")
def node(wheel) -> Path:
    """An environment with the wheel and its extra `node`."""
    return installed(wheel.with_name("node"), f"{wheel}[node]")


@pytest.fixture
def env() -> dict[str, str]:
    """No Java to be found, nothing of the project on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYTHONPATH", "SPARK_HOME"}}
    return {**kept, "PATH": "/usr/bin:/bin"}


def readme_example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "sarit.connect" in block]
    return example


def test_client_alone_writes_and_reads_at_a_node_of_another_environment(client, node, env, tmp_path):
    with RunningNode(tmp_path / "data", sarit=[str(node / "sarit")], env=env) as started:
        env["SARIT_CONTROLLER"] = started.controller
        assert "hello" in run(client / "python", "-c", readme_example(), env=env, cwd=tmp_path)
        run(client / "python", "-I", ROOT / "tests" / "client_smoke.py", started.controller, env=env)
        lines = "".join(f"line {number}\n" for number in range(1000))
        run(client / "sarit", "write", "shop/lines", "--create", input=lines, env=env, cwd=tmp_path)
        assert run(client / "sarit", "read", "shop/lines", env=env, cwd=tmp_path) == lines
        for name in ("lines.jsonl", "lines.raw"):
            run(client / "sarit", "export", "shop/lines", name, env=env, cwd=tmp_path)
            run(client / "sarit", "import", name, f"shop/{name[6:]}", "--create", env=env, cwd=tmp_path)
            assert run(client / "sarit", "read", f"shop/{name[6:]}", env=env, cwd=tmp_path) == lines
        assert started.stop() == 0


def test_client_is_light(client):
    packages = run(UV, "pip", "list", "--quiet", "--python", client / "python", "--format", "freeze").split()
    assert len(packages) <= CLIENT_PACKAGES, packages
    size = sum(path.stat().st_size for path in client.parent.rglob("*") if path.is_file() and not path.is_symlink())
    assert size <= CLIENT_BYTES


def test_node_brings_no_arrow_and_nothing_of_spark(node, env):
    names = ("pyarrow", "numpy", "pyspark", "pandas", "py4j", "kazoo", "cryptography")
    found = f"import importlib.util as u; print([m for m in {names} if u.find_spec(m)])"
    assert run(node / "python", "-c", found, env=env).strip() == "[]"


@pytest.mark.parametrize("words", COMMANDS)
def test_command_that_needs_an_extra_prints_the_line_that_installs_it(words, client, wheel, env, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "password").write_text("a long password\n")
    said = run(client / "sarit", *words.split(), code=2, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert re.fullmatch(r"sarit: [^\n]* needs packages that are not installed: [^\n]*\n", said)
    assert said.endswith(f'pip install "sarit[{COMMANDS[words]}] @ {wheel.as_uri()}"\n')
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("line", CALLS)
def test_call_that_needs_an_extra_says_so(line, client, wheel, env):
    said = run(client / "python", "-c", line, code=1, env=env).splitlines()[-1]
    assert re.match(r"sarit\.core\.extras\.MissingExtra: .* needs packages that are not installed: pip install ", said)
    assert said.endswith(f'"sarit[{CALLS[line]}] @ {wheel.as_uri()}"')


def test_the_line_that_is_printed_installs_what_is_missing(wheel, env, tmp_path):
    own = installed(tmp_path / "env", wheel)
    (tmp_path / "data").mkdir()
    said = run(own / "sarit", "verify", tmp_path / "data", code=2, env=env)
    command = shlex.split(said[said.index("pip install") :])
    run(UV, command[0], command[1], "--quiet", "--python", own / "python", *command[2:])
    assert "is not a data directory" in run(own / "sarit", "verify", tmp_path / "data", code=2, env=env)
