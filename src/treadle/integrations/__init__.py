"""Integrations: agents inside the engines of other projects: evals in Inspect and pydantic-evals. Measures nothing by itself.

Each module needs the package that it is named after: import the module, such as `treadle.integrations.inspect`.
"""

__all__: list[str] = []
