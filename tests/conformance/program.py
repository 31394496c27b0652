"""A loop as a program of its own: it finds its job in a file, and the tools over HTTP. It knows nothing of Treadle."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path


def posted(url: str, body: object, key: str = "") -> dict:
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.loads(response.read())


def called(url: str, arguments: object) -> str:
    try:
        return json.dumps(posted(url, arguments)["result"])
    except urllib.error.HTTPError as exc:
        return exc.read().decode()


job = json.loads(Path(os.environ["TREADLE_CONFORMANCE_JOB"]).read_text())
tools = [
    {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters")}}
    for tool in job["tools"]
]
messages = [{"role": "system", "content": job["system"]}, {"role": "user", "content": job["prompt"]}]
while True:
    request = {"model": job["model"], "messages": messages, **({"tools": tools} if tools else {})}
    message = posted(job["base_url"] + "/chat/completions", request, job["api_key"])["choices"][0]["message"]
    if not message.get("tool_calls"):
        print(json.dumps({"answer": message["content"], "completed": True}))
        sys.exit()
    messages.append({key: message[key] for key in ("role", "content", "tool_calls")})
    for call in message["tool_calls"]:
        result = called(f"{job['tools_url']}/{call['function']['name']}", json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
