"""Shell completion: what `kernloom completion` offers for the words of a command line.

Every TAB starts a process, so this package imports little and reads few files. It starts no
program, writes nothing, and shows no error: where something cannot be read, it offers the rest.
"""
