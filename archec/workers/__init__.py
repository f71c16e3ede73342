"""Worker processes: one way to start them, to talk to them and to end them.

The standard library's pools do not fit: ``multiprocessing`` and ``concurrent.futures`` import the parent's main module
and whatever is in the working directory, cannot limit or kill one process of a pool, and wait forever for a
process that was stopped.
"""
