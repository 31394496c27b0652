"""Validation: the gate for what a model sends and a tool returns. Text and values in, violations out; runs no tool."""

from treadle.validation.arguments import NotJson, parse_arguments
from treadle.validation.corrections import Wanted, correction, wanted_of
from treadle.validation.plain import NotData, TooMuch, data_of
from treadle.validation.quoted import unquoted
from treadle.validation.schema import Schema, shape, shape_mismatch, shape_of_schema

__all__ = [
    "NotData",
    "NotJson",
    "Schema",
    "TooMuch",
    "Wanted",
    "correction",
    "data_of",
    "parse_arguments",
    "shape",
    "shape_mismatch",
    "shape_of_schema",
    "unquoted",
    "wanted_of",
]
