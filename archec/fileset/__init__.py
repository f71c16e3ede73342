"""Filesets: data sets behind landing pages, kept whole, with manifests.

Pure parts: ``model`` and ``status`` are the words, ``strategy`` what goes where, ``manifest``, ``checksums`` and
``paths`` the rules about files, ``platforms`` what platforms mean by their answers. """
