"""Given: the JSON Schema that pydantic makes of a type, without the fields that nobody can give. Imported with pydantic only."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

__all__ = ["GivenSchema"]


class GivenSchema(GenerateJsonSchema):
    """Leaves out the fields of a dataclass with `init=False`: a value for one is refused."""

    def field_is_present(self, field: Any) -> bool:  # Any: pydantic's own description of a field
        is_given = self.mode == "serialization" or field.get("init") is not False
        return is_given and super().field_is_present(field)
