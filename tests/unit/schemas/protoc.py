"""protoc as the oracle of tests: what it makes of .proto source, or that it refuses it."""

import base64
import tempfile
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

BUNDLED = Path(grpc_tools.__file__).parent / "_proto"
SITE = BUNDLED.parent.parent


def compiled(text, references=None, folders=()):
    """Return the FileDescriptorSet of a text and all that it imports, the text's own last; None if protoc refuses.

    protoc reads references from `folders` that have them: they are files of these."""
    elsewhere = {name for name in references or () if any((Path(root) / name).exists() for root in folders)}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in {**(references or {}), "main.proto": text}.items():
            if name in elsewhere:
                continue
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.encode("utf-8", "surrogatepass"))
        out = Path(folder) / "out"
        roots = [f"-I{one}" for one in (folder, *folders, BUNDLED)]
        code = protoc.main(
            ["", *roots, "--include_imports", "--retain_options", f"--descriptor_set_out={out}", "main.proto"]
        )
        return None if code else descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def main_file(compiled_set):
    """Return the last file of a set as bytes: without empty options, and custom ones in one order."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(descriptor_pb2.DESCRIPTOR.serialized_pb))
    for one in compiled_set.file:
        if one.name != descriptor_pb2.DESCRIPTOR.name:
            pool.Add(one)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    file = kind.FromString(compiled_set.file[-1].SerializeToString())
    left = [file]
    while left:
        one = left.pop()
        for field, value in one.ListFields():
            if field.type == field.TYPE_MESSAGE and not field.is_extension:
                left += list(value) if field.is_repeated else [value]
                if field.name == "options" and not value.ByteSize():
                    one.ClearField("options")
    return file.SerializeToString(deterministic=True)


def in_base64(file):
    return base64.b64encode(file.SerializeToString()).decode()
