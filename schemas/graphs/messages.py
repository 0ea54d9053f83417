"""Protobuf messages of other projects, declared with only the fields that are read or written here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By message: each field's number and type; `*` is repeated, `{}` a map from strings. A message that is not looked into
# may be declared as its bytes.
Messages = Mapping[str, Mapping[str, tuple[int, str]]]


def message_classes(messages: Messages) -> dict[str, Any]:
    """The classes of messages, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="declared.proto", package="millrace", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            entry = message
            if kind.endswith("{}"):
                entry = message.nested_type.add(name="".join(map(str.title, field.split("_"))) + "Entry")
                entry.options.map_entry = True
                _add_field(entry, "key", 1, "string")
                _add_field(entry, "value", 2, kind.removesuffix("{}"))
                _add_field(message, field, number, f"{name}.{entry.name}*")
            else:
                _add_field(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()  # not the default pool: TensorFlow registers its own messages there
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"millrace.{name}")) for name in messages}


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    scalars = {"string": Field.TYPE_STRING, "bytes": Field.TYPE_BYTES, "int32": Field.TYPE_INT32}
    label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in scalars:
        message.field.add(name=name, number=number, label=label, type=scalars[kind])
    else:
        message.field.add(name=name, number=number, label=label, type=Field.TYPE_MESSAGE, type_name=f".millrace.{kind}")
