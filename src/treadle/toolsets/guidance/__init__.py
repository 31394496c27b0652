"""Guidance: texts of a folder that say how to work in it: instruction files and skills. They guide a model and permit nothing."""

from treadle.toolsets.guidance.instructions import FolderInstructions, GuidanceFile, folder_instructions
from treadle.toolsets.guidance.skills import Skill, SkillsFound, find_skills, skill_tool

__all__ = [
    "FolderInstructions",
    "GuidanceFile",
    "Skill",
    "SkillsFound",
    "find_skills",
    "folder_instructions",
    "skill_tool",
]
