"""Blocks: which part of a text that still streams is whole, so that it can be rendered and never changes. Renders nothing."""

import re

__all__ = ["parts_of", "split_settled"]

_FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
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
    settled, fence, opened, opening = 0, None, 0, ""
    for number, line in enumerate(lines[:-1]):
        found = _FENCE.match(line)
        if fence is not None:
            if _closes(found, fence):
                fence, settled = None, number + 1
        elif found is not None:
            fence, opened, opening = found, number, line
        elif not line.strip():
            settled = number + 1
    if fence is not None and len(lines) - opened > _LONG_BLOCK:
        whole = "\n".join([*lines[:-1], fence[1] + fence[2], ""])
        return whole, f"{opening}\n{lines[-1]}"
    return "".join(f"{line}\n" for line in lines[:settled]), "\n".join(lines[settled:])


def parts_of(text: str) -> list[tuple[str | None, str]]:
    """Part a text into prose and blocks of code: each with what stands behind the fence, the language first; None for prose.

    Code in a list has the indent of its fence, which is taken away.

    Example:
        >>> parts_of("So:\\n```sh\\nls\\n```\\nDone.")
        [(None, 'So:'), ('sh', 'ls'), (None, 'Done.')]
    """
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    fence = None
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence is not None and _closes(found, fence):
            fence = None
            parts.append((None, []))
        elif fence is None and found is not None:
            fence = found
            parts.append((found[3].strip(), []))
        else:
            parts[-1][1].append(line if fence is None else line.removeprefix(fence[1]))
    joined = [(info, "\n".join(lines)) for info, lines in parts]
    return [(info, part) for info, part in joined if info is not None or part.strip()]


def _closes(found: re.Match[str] | None, fence: re.Match[str]) -> bool:
    """Whether a fence ends a block: one far to the right belongs to the code."""
    if found is None or found[3].strip() or not found[2].startswith(fence[2]):
        return False
    return len(found[1].expandtabs()) < len(fence[1].expandtabs()) + 4
