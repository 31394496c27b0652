"""The dialect of Bedrock's Converse and ConverseStream."""

from treadle.providers.bedrock.model import Bedrock

__all__ = ["Bedrock"]
