"""Results: what a person is shown of the result of a call. Draws nothing."""

from treadle.cli.terminal.board import CallView

__all__ = ["shown_result"]


def shown_result(call: CallView) -> str:
    """Return what a person is shown of a result: of a command what it wrote, of a listing its lines."""
    result = call.result
    assert result is not None
    match result.data:
        case _ if result.display is not None:
            return result.display
        case {"exit_code": code, "stdout": str(out), "stderr": str(err)}:
            ended = "" if code == 0 else f"exit code {code}\n"
            return ended + out + ("\n" if out and err and not out.endswith("\n") else "") + err
        case {"output": str(output)}:
            return output
        case _:
            return (result.message or result.content) if result.is_error else result.content
