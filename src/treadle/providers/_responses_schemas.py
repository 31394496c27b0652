"""Responses: the schemas of its tools, under their former name. Holds nothing: see `_schemas`."""

from treadle.providers._schemas import object_schema, strict_schema

__all__ = ["object_schema", "strict_schema"]
