"""The records and rules that every other package speaks in; nothing here knows a model, a method or a file."""
