"""Results: what a person is shown of the result of a call. Draws nothing."""

from treadle import ToolResult
from treadle.cli.output.text import shown_json

__all__ = ["shown_result"]


def shown_result(result: ToolResult) -> str:
    """Return what a person is shown of a result: of a command what it wrote, of a listing its lines."""
    match result.data:
        case _ if result.display is not None:
            return result.display
        case {"exit_code": code, "stdout": str(out), "stderr": str(err)}:
            ended = "" if code == 0 else f"exit code {code}\n"
            return ended + out + ("\n" if out and err and not out.endswith("\n") else "") + err
        case {"output": str(output)}:
            return output
        case refused if (
            result.status == "rejected" and refused is not None
        ):  # the message only says that details follow
            said = refused.get("error") if isinstance(refused, dict) else refused
            return said if isinstance(said, str) else shown_json(refused, 2000)
        case _:
            return (result.message or result.content) if result.is_error else result.content
