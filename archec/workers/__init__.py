"""Worker processes: starting them, exchanging messages with them, and ending them.

The pools of the standard library are not suitable: ``multiprocessing`` and ``concurrent.futures`` import the parent's
main module and modules from the working directory, cannot limit or kill a single process of a pool, and wait forever
for a stopped process.
"""
