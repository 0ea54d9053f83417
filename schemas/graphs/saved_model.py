"""Reads the protobuf of a SavedModel without TensorFlow, and without loading its graph.

The messages are declared here with only the fields that are needed: those that show what runs, and with which inputs.
All other fields, such as constants and shapes, are not parsed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from schemas import storage
from schemas.errors import MillraceError

# By name of the message: the number and the type of each field. A type with `*` is repeated, and one with `{}` is a map
# from strings. A message that nobody looks into may be declared as bytes.
Messages = Mapping[str, Mapping[str, tuple[int, str]]]


def message_classes(messages: Messages) -> dict[str, Any]:
    """Creates the classes of protobuf messages from their declarations. Returns them by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="declared.proto", package="millrace", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            entry = message
            if kind.endswith("{}"):
                # A map is a repeated message of its entries, with a prescribed name: `node_list` -> `NodeListEntry`.
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
    """Adds a field to the declaration of a message."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    scalars = {"string": Field.TYPE_STRING, "bytes": Field.TYPE_BYTES, "int32": Field.TYPE_INT32}
    label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in scalars:
        message.field.add(name=name, number=number, label=label, type=scalars[kind])
    else:
        message.field.add(name=name, number=number, label=label, type=Field.TYPE_MESSAGE, type_name=f".millrace.{kind}")


FILE = "saved_model.pb"

MESSAGES: Messages = {
    "SavedModel": {"meta_graphs": (2, "MetaGraphDef*")},
    "MetaGraphDef": {
        "graph_def": (2, "GraphDef"),
        "saver_def": (3, "SaverDef"),
        "collection_def": (4, "CollectionDef{}"),
        "signature_def": (5, "SignatureDef{}"),
        "asset_file_def": (6, "AssetFileDef*"),
        "object_graph_def": (7, "SavedObjectGraph"),
    },
    "GraphDef": {"node": (1, "NodeDef*"), "library": (2, "FunctionDefLibrary")},
    "NodeDef": {"name": (1, "string"), "op": (2, "string"), "input": (3, "string*"), "attr": (5, "AttrValue{}")},
    "AttrValue": {"s": (2, "bytes"), "list": (1, "AttrList"), "func": (10, "NameAttrList")},
    "AttrList": {"s": (2, "bytes*"), "func": (9, "NameAttrList*")},
    "NameAttrList": {"name": (1, "string"), "attr": (2, "AttrValue{}")},
    "FunctionDefLibrary": {
        "function": (1, "FunctionDef*"),
        "gradient": (2, "GradientDef*"),
        "registered_gradients": (3, "RegisteredGradient*"),
    },
    "GradientDef": {"function_name": (1, "string"), "gradient_func": (2, "string")},
    "RegisteredGradient": {"gradient_func": (1, "string"), "registered_op_type": (2, "string")},
    "FunctionDef": {"signature": (1, "OpDef"), "node_def": (3, "NodeDef*"), "attr": (5, "AttrValue{}")},
    "OpDef": {"name": (1, "string"), "input_arg": (2, "ArgDef*")},
    "ArgDef": {"name": (1, "string")},
    "SaverDef": {
        "filename_tensor_name": (1, "string"),
        "save_tensor_name": (2, "string"),
        "restore_op_name": (3, "string"),
    },
    "CollectionDef": {"node_list": (1, "NodeList"), "any_list": (5, "AnyList")},
    "NodeList": {"value": (1, "string*")},
    "AnyList": {"value": (1, "Any*")},
    "Any": {"value": (2, "bytes")},
    "SignatureDef": {"inputs": (1, "TensorInfo{}"), "outputs": (2, "TensorInfo{}")},
    "TensorInfo": {
        "name": (1, "string"),
        "coo_sparse": (4, "CooSparse"),
        "composite_tensor": (5, "CompositeTensor"),
    },
    "CooSparse": {
        "values_tensor_name": (1, "string"),
        "indices_tensor_name": (2, "string"),
        "dense_shape_tensor_name": (3, "string"),
    },
    "CompositeTensor": {"components": (2, "TensorInfo*")},
    "AssetFileDef": {"tensor_info": (1, "TensorInfo"), "filename": (2, "string")},
    "SavedObjectGraph": {"nodes": (1, "SavedObject*"), "concrete_functions": (2, "SavedConcreteFunction{}")},
    "SavedObject": {"asset": (5, "SavedAsset")},
    "SavedAsset": {"asset_file_def_index": (1, "int32")},
    "SavedConcreteFunction": {"bound_inputs": (2, "int32*")},
}


def read_saved_model(folder: str) -> Any:
    """Reads the `SavedModel` message of a folder.

    Raises:
      MillraceError: the folder has no `saved_model.pb`, or the file is not a SavedModel.
    """
    path = storage.join(folder, FILE)
    if not storage.exists(path):
        raise MillraceError(f"{path}: missing; graphs in other formats (.pbtxt, .cpb) are not loaded")
    chunked = path.removesuffix(".pb") + ".cpb"
    if storage.exists(chunked):
        raise MillraceError(f"{chunked}: some TensorFlow loaders read it instead of {FILE}. Neither is loaded.")
    return parse("SavedModel", storage.read_bytes(path), path)


def parse(message: str, data: bytes, path: str) -> Any:
    """Parses a message.

    Args:
      message: its name in MESSAGES.
      data: its bytes.
      path: the file that the bytes come from, for the error.

    Raises:
      MillraceError: the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    parsed = _classes()[message]()
    try:
        parsed.ParseFromString(data)
    except DecodeError as error:
        raise MillraceError(f"{path}: not a TensorFlow SavedModel: {error}. Copy or export it again.") from None
    return parsed


@functools.cache
def _classes() -> dict[str, Any]:
    return message_classes(MESSAGES)
