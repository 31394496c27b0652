"""Toolsets: tools that come with Treadle, each file loaded when it is named. Holds no agent and decides nothing."""
