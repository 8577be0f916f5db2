"""Messages of protocol buffers, described by the few fields of them that are needed."""

import functools
from collections.abc import Mapping
from typing import Any


class Messages:
    """Classes of messages, made when the first is asked for.

    Args:
        fields: number and type of each field, by message and field. A type is "string", "bytes",
            "int64", "double", "float", or the name of one of the messages. A map is a list of
            messages with a key and a value.
        repeated: names of the fields that are lists.

    Example:
        >>> point = Messages({"Point": {"x": (1, "int64"), "y": (2, "int64")}})["Point"]
        >>> point.FromString(point(x=3, y=4).SerializeToString()).y
        4
    """

    def __init__(
        self,
        fields: Mapping[str, Mapping[str, tuple[int, str]]],
        repeated: frozenset[str] = frozenset(),
    ) -> None:
        self._fields, self._repeated = fields, repeated

    def __getitem__(self, name: str) -> Any:
        """Class of a message."""
        return self._classes[name]

    @functools.cached_property
    def _classes(self) -> dict[str, Any]:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        types = descriptor_pb2.FieldDescriptorProto
        # In syntax 2, a field that is set is written even if it is zero.
        file = descriptor_pb2.FileDescriptorProto(name="messages.proto", syntax="proto2")
        for message, fields in self._fields.items():
            described = file.message_type.add(name=message)
            for field, (number, kind) in fields.items():
                one = described.field.add(name=field, number=number)
                one.label = (
                    types.LABEL_REPEATED if field in self._repeated else types.LABEL_OPTIONAL
                )
                if kind in self._fields:
                    one.type, one.type_name = types.TYPE_MESSAGE, f".{kind}"
                else:
                    one.type = types.Type.Value(f"TYPE_{kind.upper()}")
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            for name in self._fields
        }
