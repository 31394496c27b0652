"""`treadle mock`: a script, served as a strict model provider on loopback until somebody stops it."""

import asyncio
import signal

from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import quiet_logs
from treadle.testing import MockProvider, load_script

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Serve a script. The first line of standard output is the base URL."""
    quiet_logs(terminal)
    return asyncio.run(_serve(options, terminal))


async def _serve(options: Options, terminal: Terminal) -> int:
    if options.script is None:
        raise UsageError("Name the script: `treadle mock SCRIPT`.")
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with MockProvider(load_script(options.script), port=options.port, record=options.record) as provider:
        terminal.line(provider.base_url)
        terminal.say("Serving until Ctrl-C. To try it: treadle run -m openai-chat:mock --base-url URL TASK")
        await stopped.wait()
    for refusal in provider.refusals:
        terminal.say(f"refused: {refusal}")
    return 0
