"""An installed client, on any system and without anything else: `python -I client_smoke.py [CONTROLLER]`.

With the address of a controller it also writes to its node, and reads.
"""

import shutil
import subprocess
import sys
import sysconfig


def command(*words: str, code: int = 0, given: str = "") -> str:
    """What the command `sarit` of this Python prints, on standard error too if it is to fail."""
    program = shutil.which("sarit", path=sysconfig.get_path("scripts"))
    assert program is not None
    done = subprocess.run([program, *words], capture_output=True, text=True, input=given, check=False, timeout=60)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stdout + done.stderr


def check_alone() -> None:
    """What needs no node."""
    import sarit

    assert not {"asyncio", "h2", "google"} & set(sys.modules), "`import sarit` imports a client"
    envelope = sarit.Envelope(b"payload", key="a", headers=[("name", b"value")])
    assert sarit.Envelope.parse(bytes(envelope)) == envelope
    assert str(sarit.StreamName("shop", "orders")) == "shop/orders"
    for name in sarit.__all__:
        getattr(sarit, name)
    try:
        sarit.connect("127.0.0.1:1")
    except sarit.SaritError as error:
        refused = str(error)
    assert "127.0.0.1:1" in refused
    assert sarit.__version__ in command("--version")
    assert "standalone" in command("--help")
    assert "127.0.0.1:1" in command("write", "shop/orders", "--controller", "127.0.0.1:1", code=1, given="hello\n")
    missing = command("verify", ".", code=2)
    assert "pip install" in missing or "not a data directory" in missing, missing


def check_node(controller: str) -> None:
    """A write and a read, by the client and by the command."""
    import sarit

    with sarit.connect(controller) as client:
        client.create_scope("smoke")
        client.create_stream("smoke/events")
        with client.writer("smoke/events") as writer:
            writer.write("hello", key="a")
        assert [event.decode() for event in client.reader("smoke/events", end="tail")] == ["hello"]
    command("write", "smoke/lines", "--create", "--controller", controller, given="one\ntwo\n")
    assert command("read", "smoke/lines", "--controller", controller).splitlines() == ["one", "two"]


if __name__ == "__main__":
    check_alone()
    for address in sys.argv[1:]:
        check_node(address)
    print(f"works: Python {sys.version.split()[0]} on {sys.platform}")
