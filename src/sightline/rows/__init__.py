"""Reading rows: a run as tables (``run.load_run``), runs made ready to be reported or decided on (``read_source``).

The one layer through which rows are read, under everything that shows or decides something about them.
"""
