"""JSON both ways for frozen dataclasses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache, cached_property
from typing import Any, Self, cast

from accel_helpers.errors import StoreError

SCHEMA = 3
"""Raised by one when a field is added or changes its meaning; a record of another schema is refused, never misread."""


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


class Record:
    """JSON both ways for the frozen dataclasses of this module."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the schema version and the record's kind."""
        return {"schema": SCHEMA, "kind": type(self).__name__, **_adapter(cast(Any, type(self))).dump_python(self, mode="json")}

    def to_json(self) -> str:
        """:meth:`to_dict` as text with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The record that :meth:`to_dict` wrote.

        Raises:
            StoreError: another schema version, another kind, or fields that do not fit.
        """
        if (values.get("schema"), values.get("kind")) != (SCHEMA, cls.__name__):
            found = f"{values.get('kind')} of schema {values.get('schema')}"
            raise StoreError(f"Expected a {cls.__name__} of schema {SCHEMA}, found {found}.", "Measure again with this version.")
        known = {name: value for name, value in values.items() if name not in ("schema", "kind")}
        unknown = known.keys() - {f.name for f in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            raise StoreError(f"A {cls.__name__} has no field {sorted(unknown)[0]!r}.", "Measure again with this version.")
        try:
            record: Self = _adapter(cast(Any, cls)).validate_python(known)
            return record
        except ValueError as error:
            raise StoreError(f"This {cls.__name__} cannot be read: {error}.", "Measure again with this version.") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """:meth:`from_dict` of a JSON text."""
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise StoreError(f"This {cls.__name__} is not JSON: {error}.", "The file is damaged; measure again.") from None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the record's JSON: its name in the store."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
