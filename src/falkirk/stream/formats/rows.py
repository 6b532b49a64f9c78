"""The static type of rows, for type checkers. When a flow runs, every row is a dict, whatever described its columns.

    described by                                a function's row is
    a TypedDict Order                           Order
    a dict of types, or a dataclass             dict[str, Any]
    an Avro or Protobuf schema, one column      dict[str, Any]

`Stream` without a parameter is `Stream[Any]`: its functions are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with `default`, which Python has since 3.13

    RowT_co = TypeVar("RowT_co", covariant=True, default=Any)
    RowT_contra = TypeVar("RowT_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    RowT_co = TypeVar("RowT_co", covariant=True)
    RowT_contra = TypeVar("RowT_contra", contravariant=True)

TypedRow = TypeVar("TypedRow", bound=Mapping[str, Any])
"""A TypedDict; of a format, `Row` too."""

Row: TypeAlias = dict[str, Any]
"""A row of which the checker knows no more: by column."""


class IsDataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Untyped: TypeAlias = Mapping[str, Any] | type[IsDataclass]
"""A dict of name to type, or a dataclass: rows are `Row`."""

SchemaLike: TypeAlias = Untyped | type[Mapping[str, Any]]
"""A dict of name to type, a dataclass or a TypedDict."""
