"""Messages of Protobuf: from a generated class, a .proto file, its text, or what a registry has.

    ProtoSchema = the files that define a message, as protoc compiles them, and the message's name

Each schema has a pool of its own: two files of one name, or two messages, do not meet there.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.formats.registry import Registered

_KNOWN = "google/protobuf/"
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_NAME = "schema.proto"
_WARNING = re.compile(r"warning:|^WARNING:|^W\d{4} ")
"""A line of protoc that is no error."""


@dataclass(frozen=True)
class ProtoSchema:
    """A message, and the files that define it."""

    files: bytes
    """A FileDescriptorSet: each file behind those that it imports."""
    message: str
    """Its full name."""
    text: str
    """What a registry is given: the file that defines it, as it is written, or as bytes in base64."""

    def __repr__(self) -> str:
        return f"{self.message} {hashlib.sha256(self.files).hexdigest()[:12]}"

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "message": self.message, "text": self.text}

    @cached_property
    def descriptor(self) -> Any:
        """The library's view of the message."""
        return _pool(self.files).FindMessageTypeByName(self.message)

    @cached_property
    def made(self) -> Any:
        """The message's class."""
        return library().message_factory.GetMessageClass(self.descriptor)

    @property
    def path(self) -> tuple[int, ...]:
        """Which message of its file it is: the number of one at the top, of one within that, and so on."""
        here, found = self.descriptor, []
        while here is not None:
            outer = here.containing_type
            siblings = outer.nested_types if outer is not None else here.file.message_types_by_name.values()
            found.append([each.full_name for each in siblings].index(here.full_name))
            here = outer
        return tuple(reversed(found))

    @property
    def imports(self) -> Sequence[str]:
        """Files that whoever reads the text needs besides."""
        return [file.name for file in self.descriptor.file.dependencies if not file.name.startswith(_KNOWN)]


def library() -> ModuleType:
    """Google's library. Raises ConfigError where it is not installed."""
    try:
        import google.protobuf as found
        import google.protobuf.descriptor_pb2
        import google.protobuf.descriptor_pool
        import google.protobuf.message
        import google.protobuf.message_factory
        import google.protobuf.unknown_fields  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(
            "Protobuf needs a library that is not installed", hint="pip install 'falkirk[protobuf]'"
        ) from None
    module: ModuleType = found
    return module


def schema_from(given: Any, message: str | None = None) -> ProtoSchema:
    """A schema from a generated class, a .proto file's name, or its text. Raises DefinitionError.

    >>> schema_from('syntax = "proto3"; package shop; message Bid { int64 price = 1; }').message
    'shop.Bid'
    """
    if isinstance(given, type) and issubclass(given, library().message.Message):
        if message is not None:
            raise DefinitionError("a class is of one message, and message= names another")
        descriptor = vars(given)["DESCRIPTOR"]
        text = base64.standard_b64encode(descriptor.file.serialized_pb).decode("ascii")
        return ProtoSchema(_files_of(descriptor.file), descriptor.full_name, text)
    if isinstance(given, str) and re.search(r"[;{]", given):
        return _named(compiled({_NAME: given}), message, given, "")
    if isinstance(given, str | Path):
        where = f"file {given}"
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"a Protobuf schema cannot be read: {error}", hint="name a .proto file") from None
        return _named(_protoc(Path(given).name, str(Path(given).parent), where), message, text, where)
    raise DefinitionError(
        f"{given!r:.80} describes no Protobuf message",
        hint='give a generated class, or a file: fk.Protobuf("bid.proto")',
    )


def registered(found: Registered, path: Sequence[int]) -> ProtoSchema:
    """The message that a record names, of a schema that a registry has. Raises DefinitionError."""
    files = compiled({**dict(found.references), _NAME: found.text})
    descriptor = _file(files)
    siblings = list(descriptor.message_types_by_name.values())
    message = None
    for number in path:
        if not 0 <= number < len(siblings):
            raise DefinitionError(f"it has no message {'.'.join(map(str, path))}")
        message = siblings[number]
        siblings = list(message.nested_types)
    assert message is not None
    return ProtoSchema(files, message.full_name, found.text)


def compiled(texts: Mapping[str, str]) -> bytes:
    """Files by name, the last of which imports the others, as a FileDescriptorSet. Each is text, or bytes in base64.
    Raises DefinitionError."""
    return _compiled(tuple(texts.items()))


@lru_cache(maxsize=64)
def _compiled(texts: tuple[tuple[str, str], ...]) -> bytes:
    if all(_BASE64.fullmatch(text) for _, text in texts):
        return _decoded([text for _, text in texts])
    with TemporaryDirectory(prefix="falkirk-proto-") as folder:
        for name, text in texts:
            file = (Path(folder) / name).resolve()
            if not file.is_relative_to(Path(folder).resolve()):
                raise DefinitionError(f"{name!r} is not the name of a Protobuf file")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return _protoc(texts[-1][0], folder, "")


def _decoded(texts: Sequence[str]) -> bytes:
    """Compiled files, and the known ones among those that they import."""
    pb2 = library().descriptor_pb2
    found = pb2.FileDescriptorSet()
    try:
        given = [pb2.FileDescriptorProto.FromString(base64.b64decode(text)) for text in texts]
        for file in given:
            for name in file.dependency:
                if name.startswith(_KNOWN) and name not in [each.name for each in found.file]:
                    _import_known(name)
                    known = library().descriptor_pool.Default().FindFileByName(name)
                    found.MergeFromString(_files_of(known))
        found.file.extend(given)
        _pool(found.SerializeToString())
    except (library().message.DecodeError, KeyError, TypeError, ValueError, ModuleNotFoundError) as error:
        raise DefinitionError(f"this is not a compiled Protobuf file: {error}") from None
    return bytes(found.SerializeToString())


def _import_known(name: str) -> None:
    """Put a file of the library's own where its pool knows it."""
    __import__(name.removesuffix(".proto").replace("/", ".") + "_pb2")


def _protoc(name: str, folder: str, where: str) -> bytes:
    """A file of a folder, compiled. In a process of its own: protoc tells of errors on its standard error."""
    order = [sys.executable, "-P", "-m", "grpc_tools.protoc", "--include_imports", f"--proto_path={folder}"]
    with TemporaryDirectory(prefix="falkirk-proto-") as made:
        out = Path(made) / "set.pb"
        done = subprocess.run([*order, f"--descriptor_set_out={out}", name], capture_output=True, check=False)
        if done.returncode == 0:
            return out.read_bytes()
    said = done.stderr.decode("utf-8", "replace").strip()
    if "No module named" in said:
        raise ConfigError("a .proto needs grpcio-tools to be compiled", hint="pip install 'falkirk[protobuf]'")
    said = "; ".join(line.removeprefix(f"{folder}/") for line in said.splitlines() if not _WARNING.search(line))
    raise DefinitionError(f"this is not a Protobuf schema: {said}", where=where)


def _named(files: bytes, message: str | None, text: str, where: str) -> ProtoSchema:
    file = _file(files)
    names = list(_messages(file.message_types_by_name.values()))
    if message is None:
        top = [each.full_name for each in file.message_types_by_name.values()]
        if len(top) != 1:
            raise DefinitionError(
                f"a Protobuf schema with {len(top) or 'no'} messages, of which none is named",
                where=where,
                hint=f"name it: message={top[0]!r}" if top else "",
            )
        return ProtoSchema(files, top[0], text)
    found = [name for name in names if message in (name, name.removeprefix(f"{file.package}."))]
    if not found:
        raise DefinitionError(f"there is no message {message!r}", where=where, hint=f"there are: {', '.join(names)}")
    return ProtoSchema(files, found[0], text)


def _messages(messages: Any) -> list[str]:
    return [name for each in messages for name in (each.full_name, *_messages(each.nested_types))]


def _file(files: bytes) -> Any:
    """The last file of a set."""
    last = library().descriptor_pb2.FileDescriptorSet.FromString(files).file[-1].name
    return _pool(files).FindFileByName(last)


@lru_cache(maxsize=64)
def _pool(files: bytes) -> Any:
    pool = library().descriptor_pool.DescriptorPool()
    for file in library().descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    pool.FindFileByName(file.name)
    return pool


def _files_of(file: Any) -> bytes:
    """A file of the library's, behind those that it imports."""
    pb2 = library().descriptor_pb2
    found: dict[str, Any] = {}

    def visit(each: Any) -> None:
        for before in each.dependencies:
            visit(before)
        found.setdefault(each.name, pb2.FileDescriptorProto.FromString(each.serialized_pb))

    visit(file)
    return bytes(pb2.FileDescriptorSet(file=found.values()).SerializeToString(deterministic=True))
