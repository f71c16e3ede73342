"""The output of commands: safe text, progress, atomic files. Independent of archives."""
