"""What a person is shown of a call: no character of it is invisible, at the terminal, in a review or in a server's texts."""

import pytest

from treadle.cli.output.text import one_line
from treadle.permissions.consent import escaped
from treadle.toolsets.mcp.servers import visible

# Default_Ignorable_Code_Point of Unicode 16.0, from DerivedCoreProperties.txt.
IGNORABLE = [
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
]  # fmt: skip
BLANK = "\u070f\u2800\u2d7f\ufff9\ufffa\ufffb\ufffc\U00013430\U0001343f\U00016fe4\U0001d159"
"""Letters and marks with no glyph of their own, and signs that stand for something else."""


@pytest.mark.parametrize("shows", [escaped, visible, lambda text: one_line(text, 100)])
def test_what_has_no_glyph_is_written_by_name_or_number(shows):
    invisible = [chr(one) for first, last in IGNORABLE for one in range(first, last + 1)]
    shown = {one for one in [*invisible, *BLANK] if one in shows(f"a{one}b")}
    assert shown == set()
