"""A small loop of one's own, as an adapter for the conformance suite: `treadle conformance --subject my_loop:adapter`."""

import json
import urllib.request
from typing import Any

Job = Any  # what the suite gives: see "What a job has". A loop needs nothing of Treadle


def ask(job: Job, messages: list[dict[str, Any]]) -> dict[str, Any]:
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in job.tools
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    body = {"model": job.model, "messages": messages, **({"tools": tools} if tools else {})}
    headers = {"authorization": f"Bearer {job.api_key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{job.base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        answer: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return answer


def adapter(job: Job) -> dict[str, Any]:
    tools = {tool.name: tool for tool in job.tools}
    messages: list[dict[str, Any]] = [{"role": "user", "content": job.prompt}]
    for _ in range(job.max_steps):
        answer = ask(job, messages)
        messages.append({key: answer[key] for key in ("role", "content", "tool_calls") if key in answer})
        if not answer.get("tool_calls"):
            return {"answer": answer["content"], "completed": True}
        for call in answer["tool_calls"]:
            result = tools[call["function"]["name"]].run(json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
    return {"answer": None, "completed": False}


adapter.offers = ("chat", "max_steps")  # type: ignore[attr-defined]  # the suite asks for it
