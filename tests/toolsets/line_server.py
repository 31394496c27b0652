"""A server of tools over standard input and output, one JSON object a line. Run by itself: `python line_server.py NAME...`

It has the tools that it is started with. `unlock` adds `open_vault` and says so; `die` ends the process by SIGKILL in its call.
"""

import json
import os
import signal
import sys

DESCRIPTIONS = {
    "add": {"a": "integer", "b": "integer"},
    "die": {},
    "unlock": {},
    "open_vault": {},
    "pay": {"amount": "integer"},
}


def described(name: str) -> dict[str, object]:
    fields = {field: {"type": kind} for field, kind in DESCRIPTIONS.get(name, {}).items()}
    parameters = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"name": name, "description": f"The {name} of the line server.", "parameters": parameters}


def main(names: list[str]) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        answer: object = None
        match asked["do"]:
            case "list":
                answer = [described(name) for name in names]
            case "add":
                answer = asked["with"]["a"] + asked["with"]["b"]
            case "unlock":
                names.append("open_vault")
                print(json.dumps({"changed": True}), flush=True)
                answer = "unlocked"
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case other:
                answer = f"{other} of {os.getpid()}"
        print(json.dumps({"id": asked["id"], "answer": answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
