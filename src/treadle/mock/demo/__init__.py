"""The demo model: rules in place of a language model, behind a real server. Talks to no network but loopback."""

from treadle.mock.demo.model import DemoModel

__all__ = ["DemoModel"]
