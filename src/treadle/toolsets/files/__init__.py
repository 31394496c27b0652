"""Files: tools that read, list, search and change the files of one folder."""

from treadle.toolsets.files.reading import file_tools, glob_tool, list_tool, read_tool
from treadle.toolsets.files.writing import edit_tool, write_tool, writing_tools

__all__ = ["edit_tool", "file_tools", "glob_tool", "list_tool", "read_tool", "write_tool", "writing_tools"]
