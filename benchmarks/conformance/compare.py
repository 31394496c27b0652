"""Hold other libraries against the conformance suite, beside Treadle: each twice, in an environment of its own with pinned versions.

    python benchmarks/conformance/compare.py                       all of them; what is missing is installed first, with pip
    python benchmarks/conformance/compare.py pydantic_ai llm       only these, beside Treadle; the others' results stay
    python benchmarks/conformance/compare.py --docs                run nothing; write the page and the pictures of the last results

The pins are `../peers/NAME_peer.txt`, the adapters `NAME_loop.py`. All stays on loopback.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import report
import rivals
from run import python_of

from treadle.conformance import SCENARIOS, AdapterSubject, Report, Verdict, run_suite
from treadle.conformance.scenario import DialectName

RESULTS = HERE / "results.json"
ROUNDS = 2
SECONDS = 90.0
"""How long one process may take. Libraries that load much, on a machine that is busy, need more than Treadle's own tests."""
SIDE_BY_SIDE = 4


class Library(NamedTuple):
    """One library."""

    title: str
    forms: Mapping[str, str]
    """What each form of its adapter is, by the adapter's name."""
    dialect: DialectName = "chat"


_DOCUMENTED = {"adapter": ""}
LIBRARIES = {
    "treadle": Library("Treadle", _DOCUMENTED),
    "pydantic_ai": Library(
        "Pydantic AI", {**_DOCUMENTED, "advised": "3 corrections, tools that fail, checked endings"}
    ),
    "openai_agents": Library("OpenAI Agents SDK", {**_DOCUMENTED, "advised": "errors for unknown names, one by one"}),
    "langgraph": Library("LangGraph", {**_DOCUMENTED, "advised": "ToolErrorMiddleware, checked endings"}),
    "strands": Library("Strands Agents", {**_DOCUMENTED, "advised": "inputSchema, one by one, checked endings"}),
    "google_adk": Library("Google ADK", _DOCUMENTED),
    "agno": Library("Agno", _DOCUMENTED),
    "smolagents": Library("smolagents", _DOCUMENTED),
    "llm": Library("llm", _DOCUMENTED),
    "mini_swe": Library("mini-swe-agent", _DOCUMENTED),
    "claude_agent_sdk": Library("Claude Agent SDK", _DOCUMENTED, "anthropic"),
}


def main() -> int:
    wanted = _arguments()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    if not wanted.docs:
        for name in ["treadle", *wanted.names]:
            if fault := "" if name == "treadle" else rivals.set_up(name):
                print(f"Left out: {LIBRARIES[name].title}. {fault}", file=sys.stderr)
                continue
            for form in LIBRARIES[name].forms:
                results = _with(results, f"{name}:{form}", asyncio.run(_judged(name, form)))
                RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(report.table(results))
    for path, text in report.made(results).items():
        path.write_text(text, encoding="utf-8")
        print(f"Written: {path}", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    others = [name for name in LIBRARIES if name != "treadle"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(others)}; without one, all")
    parser.add_argument("--docs", action="store_true", help="run nothing; write the page of the last results")
    wanted = parser.parse_args()
    if unknown := sorted(set(wanted.names) - set(others)):
        parser.error(f"{unknown[0]!r} has no adapter here. Choose from {', '.join(others)}.")
    wanted.names = wanted.names or others
    return wanted


def _with(results: Mapping[str, Any], key: str, judged: Mapping[str, Any]) -> dict[str, Any]:
    subjects = {**results.get("subjects", {}), key: judged}
    order = [f"{name}:{form}" for name, one in LIBRARIES.items() for form in one.forms]
    return {
        "command": "make conformance-rivals",
        "machine": {
            "system": platform.system(),
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
        },
        "rounds": ROUNDS,
        "subjects": {key: subjects[key] for key in order if key in subjects},
    }


async def _judged(name: str, form: str) -> dict[str, Any]:
    """Run the suite on one form of a library, twice."""
    began = time.strftime("%Y-%m-%d %H:%M")
    reports = []
    for number in range(ROUNDS):
        print(f"{LIBRARIES[name].title}, {form}, round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        reports.append(
            await run_suite(
                _subject(name, form),
                SCENARIOS,
                dialects=[LIBRARIES[name].dialect],
                side_by_side=SIDE_BY_SIDE,
                seconds=SECONDS,
            )
        )
    return {
        "title": LIBRARIES[name].title,
        "form": LIBRARIES[name].forms[form],
        "dialect": LIBRARIES[name].dialect,
        "when": began,
        "versions": {"treadle": _own_version()} if name == "treadle" else rivals.versions(name),
        "verdicts": _verdicts(reports),
    }


def _subject(name: str, form: str) -> AdapterSubject:
    if name == "treadle":
        return AdapterSubject("treadle.conformance.own:adapter")
    return AdapterSubject(f"{name}_loop:{form}", python=python_of(f"{name}_peer"), folder=HERE)


def _own_version() -> str:
    from importlib.metadata import version

    return version("treadle")


def _verdicts(reports: Sequence[Report]) -> dict[str, Any]:
    """Return what each scenario came to, with the evidence of a failure. One that differs between rounds says so."""
    found = {}
    for rounds in zip(*(one.verdicts for one in reports), strict=True):
        outcomes = [one.outcome for one in rounds]
        shown = next((one for one in rounds if one.outcome == "fails"), rounds[0])
        found[shown.scenario] = {
            "outcome": shown.outcome,
            **({"outcomes": outcomes} if len(set(outcomes)) > 1 else {}),
            **({"missing": list(shown.missing)} if shown.missing else {}),
            **(
                {"faults": [_short(one, 400) for one in shown.faults], "evidence": _evidence(shown)}
                if shown.faults
                else {}
            ),
        }
    return found


def _evidence(verdict: Verdict) -> dict[str, Any]:
    seen = verdict.evidence
    last = seen["requests"][-1]["body"] if seen["requests"] else {}
    messages = last.get("messages", []) if isinstance(last, dict) else [last]
    return {
        "statuses": [one["status"] for one in seen["requests"]],
        "last_messages": [_short(json.dumps(one, ensure_ascii=False), 300) for one in messages[-6:]],
        "executions": [
            {
                "tool": one["tool"],
                "arguments": _short(json.dumps(one["arguments"], ensure_ascii=False), 200),
                "done": one["is_done"],
            }
            for one in seen["executions"][:6]
        ],
        "exits": [
            {
                "code": one["code"],
                "answer": _short(str(one["answer"]), 200),
                "error": _short(one["outcome"].get("error") or "", 300),
            }
            for one in seen["exits"]
        ],
    }


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


if __name__ == "__main__":
    sys.exit(main())
