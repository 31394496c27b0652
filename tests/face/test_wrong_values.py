"""Every public callable, each parameter with every wrong value: it works, or it says in a sentence what is wrong."""

import contextlib
import inspect
import warnings
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from faces import Face, faces
from sweep import WRONG, attempt, complaint

from treadle.errors import TreadleError

_SHARE = 4
"""Of so many values for a parameter, `make test` tries one; all parameters together have had every value."""
_PARTS = 24


@pytest.mark.row("H21")
@pytest.mark.unchecked("events are written by hand, without a run")
@pytest.mark.parametrize("share", [_SHARE, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("part", range(_PARTS))
async def test_no_wrong_value_is_a_raw_error(part: int, share: int, tmp_path: Path) -> None:
    complaints: list[str] = []
    for number, face in enumerate(faces()[part::_PARTS]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with contextlib.chdir(folder):  # some wrong values are names of files
            complaints += await _complaints(face, folder, share)

    assert complaints == []


async def _complaints(face: Face, tmp_path: Path, share: int) -> list[str]:
    warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that is refused is never awaited
    warnings.simplefilter("ignore", DeprecationWarning)  # a right value of an option that goes
    usual = await attempt(tmp_path, face)
    assert usual is None or isinstance(usual, TreadleError), f"valid.py lacks a valid value for {face}: {usual!r}"

    complaints: list[str] = []
    for one in face.parameters:
        if (face.name, one.name) == ("Agent.replace", "changes"):
            continue  # they are the options of Agent, each of which has its values there
        for label in list(WRONG)[crc32(f"{face} {one.name}".encode()) % share :: share]:
            wrong: Any = WRONG[label]()
            found = complaint(face, one, wrong, await attempt(tmp_path, face, one.name, wrong))
            if found is not None:
                complaints.append(f"{face}: {one.name} = {label} {found}")
            if inspect.iscoroutine(wrong):
                wrong.close()
    return complaints
