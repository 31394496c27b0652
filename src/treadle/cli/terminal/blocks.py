"""Blocks: which part of a text that still streams is whole, so that it can be rendered and never changes. Renders nothing."""

import re

__all__ = ["parts_of", "split_settled"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_LONG_BLOCK = 40
"""Lines of a block of code that are shown together. A longer one comes in parts."""


def split_settled(text: str) -> tuple[str, str]:
    """Part a growing text of Markdown into its whole blocks and the block that still grows.

    A block of code is whole at its end; of a long one the lines so far are given off, as a block of their own.

    Example:
        >>> split_settled("One.\\n\\nTwo")
        ('One.\\n\\n', 'Two')
    """
    lines = text.split("\n")
    settled, fence, opened, opening = 0, "", 0, ""
    for number, line in enumerate(lines[:-1]):
        found = _FENCE.match(line)
        if fence:
            if found is not None and found[1].startswith(fence) and not found[2].strip():
                fence, settled = "", number + 1
        elif found is not None:
            fence, opened, opening = found[1], number, line
        elif not line.strip():
            settled = number + 1
    if fence and len(lines) - opened > _LONG_BLOCK:
        whole = "\n".join([*lines[:-1], fence, ""])
        return whole, f"{opening}\n{lines[-1]}"
    return "".join(f"{line}\n" for line in lines[:settled]), "\n".join(lines[settled:])


def parts_of(text: str) -> list[tuple[str | None, str]]:
    """Part a text into prose and blocks of code: each with the language of the code, None for prose.

    Example:
        >>> parts_of("So:\\n```sh\\nls\\n```\\nDone.")
        [(None, 'So:'), ('sh', 'ls'), (None, 'Done.')]
    """
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence and found is not None and found[1].startswith(fence) and not found[2].strip():
            fence = ""
            parts.append((None, []))
        elif not fence and found is not None:
            fence = found[1]
            parts.append((found[2].strip().partition(" ")[0], []))
        else:
            parts[-1][1].append(line)
    joined = [(language, "\n".join(lines)) for language, lines in parts]
    return [(language, part) for language, part in joined if language is not None or part.strip()]
