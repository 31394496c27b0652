"""smolagents in the conformance suite: its agent that calls tools. A text without calls ends its run, as its own call `final_answer` does."""

from importlib.metadata import version
from typing import Any

from smolagents import ChatMessage, ChatMessageToolCall, OpenAIModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessageToolCallFunction
from smolagents.monitoring import LogLevel
from warm import prepare


def adapter(job: Any) -> dict[str, Any]:
    client = {"max_retries": job.max_attempts - 1}
    if job.model_timeout is not None:
        client["timeout"] = job.model_timeout
    agent = ToolCallingAgent(
        tools=[_Told(one) for one in job.tools],
        model=_Ending(
            model_id=job.model,
            api_base=job.base_url,
            api_key=job.api_key,
            client_kwargs=client,
            retry=False,  # the client's own retries are bounded above
        ),
        instructions=job.system,
        max_steps=job.max_steps,
        stream_outputs=job.stream,
        verbosity_level=LogLevel.OFF,
    )
    run = agent.run(job.prompt, return_full_result=True)
    used = run.token_usage
    return {
        "answer": run.output,
        "completed": run.state == "success",
        "usage": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens} if used else {},
    }


class _Ending(OpenAIModel):
    """A model whose text without calls is the call that ends a run. The library asks this method what a text means."""

    def parse_tool_calls(self, message: ChatMessage) -> ChatMessage:
        if message.content and not message.tool_calls:
            ends = ChatMessageToolCallFunction(name="final_answer", arguments={"answer": message.content})
            message.tool_calls = [ChatMessageToolCall(function=ends, id="final", type="function")]
        return super().parse_tool_calls(message)


class _Told(Tool):
    """A tool as the library's own adapters of foreign tools make it."""

    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, told: Any) -> None:
        schemas, required = told.parameters["properties"], told.parameters["required"]
        self.name, self.description = told.name, told.description
        self.inputs = {
            name: {"description": name, **schema, **({} if name in required else {"nullable": True})}
            for name, schema in schemas.items()
        }
        self._run = told.run
        super().__init__()

    def forward(self, **arguments: Any) -> Any:
        return self._run(arguments)


adapter.name = "smolagents"
adapter.version = version("smolagents")
adapter.offers = (
    *("chat", "stream", "max_steps", "retries", "model_timeout", "usage"),
    *("texts", "-contents/forged-roles", "-parallel/three", "-parallel/fifty", "-parallel/steps"),
    *("-identity/same-id-later", "-histories/text-with-call"),
    *("-streams/ends-early", "-streams/cut-answer", "-streams/filtered"),  # a text that is cut would not end its run
)
adapter.prepare = lambda: prepare(adapter)
