"""The embedded reader: a small Qwen3-VL trained from scratch to say whether an image contains an exact text."""
