"""Lazy: names of a package that load on first use, so that importing it costs nothing. Loads nothing itself."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, str], *, extras: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__all__`, `__getattr__` and `__dir__`.

    Args:
        package: Its name.
        names: By module below it, the public names that this module has, parted by blanks.
        extras: By module, the extra without which it cannot be imported.
    """
    homes = {name: module for module, some in names.items() for name in some.split()}

    def load(name: str) -> Any:  # Any: whatever has that name
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            extra = (extras or {}).get(homes[name])
            if extra is None or str(error.name).startswith("treadle"):
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs the package {error.name}. Install it: pip install '.[{extra}]' in the project's folder",
                name=error.name,
            ) from error
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return sorted(homes), load, listed
