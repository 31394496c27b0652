"""What is said of other libraries is what was found out about them."""

import json
import subprocess
import sys

from house import PROJECT

FOLDER = PROJECT / "benchmarks" / "conformance"
MADE = "import json, report; print(json.dumps({str(path): text for path, text in report.made(json.load(open('results.json'))).items()}))"


def test_the_page_the_picture_and_the_evidence_are_those_of_the_results():
    ran = subprocess.run([sys.executable, "-c", MADE], cwd=FOLDER, capture_output=True, text=True, check=True)

    made = json.loads(ran.stdout)
    assert len(made) == 4
    wrong = [path for path, text in made.items() if (PROJECT / path).read_text() != text]
    assert wrong == [], "say: python benchmarks/conformance/compare.py --docs"


def test_the_front_pages_say_how_many_scenarios_there_are_and_libraries():
    results = json.loads((FOLDER / "results.json").read_bytes())["subjects"]
    others = {one["title"] for one in results.values()} - {"Treadle"}

    assert {len(one["verdicts"]) for one in results.values() if one.get("dialect", "chat") == "chat"} == {149}
    assert len(others) == 10
    for page in ("README.md", "docs/index.md"):
        text = " ".join((PROJECT / page).read_text().split())
        assert "149 failures of production" in text
        assert "ten other libraries" in text
