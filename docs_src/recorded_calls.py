"""Recorded calls of a tool, compared with what the tool promises now: in the code, in a file, and in your own test."""

import asyncio
import json
import tempfile
from pathlib import Path

from treadle import tool
from treadle.agents import check_tools, load_tool_examples
from treadle.tools import ToolExample


@tool(
    effect="read",
    examples=[ToolExample(arguments={"product": "teapot"}, result={"euros": 24.5}, deterministic=True)],
)
async def price(product: str) -> dict[str, float]:
    """Return the price of a product.

    Args:
        product: The product's name, such as `teapot`.
    """
    return {"euros": 24.5}


def main() -> None:
    assert asyncio.run(check_tools([price], run=True)) == ()  # in a test of your own

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "calls.jsonl")
        path.write_text(json.dumps({"tool": "price", "arguments": {"product": "kettle"}, "result": {"euros": "19.00"}}))
        for finding in asyncio.run(check_tools([price], recorded=load_tool_examples(path))):
            print(f"{finding.level}: {finding.tool}: {finding.where}: {finding.message}")


if __name__ == "__main__":
    main()
