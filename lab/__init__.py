"""Where the shipped readers, scenes and stand-ins come from. Beside the package, in no wheel; see README.md."""
