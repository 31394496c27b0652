"""Clouds: where a cloud's models are reached, and who asks there. Knows no dialect; its libraries are extras, loaded on first use."""
