"""Files: tools that read, list and search the files of one folder."""

from treadle.toolsets.files.reading import file_tools, glob_tool, list_tool, read_tool

__all__ = ["file_tools", "glob_tool", "list_tool", "read_tool"]
