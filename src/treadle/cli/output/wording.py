"""Wording: the library's advice as it helps at a command line: an option or a command in place of Python. Knows no error."""

import re

__all__ = ["for_terminal"]

_WORDINGS = [
    # keys and addresses
    (r" Set it, pass api_key=, or name a server of your own with base_url \(--base-url\)\.",
     " Set it, or name a server of your own with --base-url."),
    (r"\(api_key=, or (the variable that it was read from, such as )?(\w+)\)", r"(of \1\2)"),
    (r" \(api_key=\)", ""),
    (r"set api_key=, or (\w+)\.", r"set \1."),
    (r"No API key was sent: set api_key=\.", "No API key was sent: set the variable of its vendor."),
    (r"\bset base_url to where the API is\b", "set --base-url to where the API is"),
    (r"\bCheck base_url: it often ends\b", "Check --base-url: it often ends"),
    (r"(\bname and|,? or|, or|\bset) base_url\b(?=[.,])", r"\1 --base-url"),
    # what a model costs and can do
    (r" Give its price with resolve_model\([^)]*\)\), install genai-prices, leave the budget out, or accept it with Agent\([^)]*\)\.",
     " Give its price as `[price]` in your configuration, install genai-prices, or leave the limit out."),
    (r"say so with resolve_model\(\.\.\., facts=ModelFacts\(inputs=\[\.\.\.\]\)\)",
     "say so with `inputs` of `[facts]` in your configuration"),
    # sessions
    (r"\bsession\.cancel\(\) or (?=`treadle )", ""),
    (r"\bsession\.answer\('[^']+', 'allow'\) or (?=`treadle )", ""),
    (r"\bsession\.answer\('([^']+)', 'allow'\)", r"`treadle approve \1`"),
    (r"\((?:agent|session)\.\w+\([^()]*\), or (`treadle [^`]*`)\)", r"(\1)"),
    (r",? or (?:agent|session)\.\w+\([^()]*\)", ""),
    # of a failed request the message says it, and the next line how to resume
    (r" Read the message, fix the connection or the configuration, then resume\.", ""),
]  # fmt: skip
"""Phrases of the library, and what they are here. Each is so specific that no text of a model, a tool or a server has it by chance."""


def for_terminal(text: str) -> str:
    """Return a message of the library with options and commands in place of Python.

    Example:
        for_terminal("Check the model's name and base_url.")  # "Check the model's name and --base-url."
    """
    for phrase, wording in _WORDINGS:
        text = re.sub(phrase, wording, text)
    return text
