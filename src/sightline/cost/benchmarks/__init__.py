"""Cost benchmarks, one file each. A file registers itself; nothing else lists it.

None imports torch while it is imported: ``sightline bench --help`` reads them all.
"""
