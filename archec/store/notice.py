"""The text of ``0=archec_1.0``: what an obi store is, for someone who finds it without archec."""

from __future__ import annotations

NOTICE = """\
archec 1.0

What this is
  An archive of what RePEc (Research Papers in Economics) said, and of the files it pointed to, at
  every moment that somebody looked. Everything needed to read it is in this folder; a database
  beside it, if there is one, is only an index and can be made again from here.
  Files here are never changed and never removed once they have their name.

Times
  A tist is a time: the number of seconds since 1970-01-01T00:00:00 UTC, as a decimal number.

Where an object is
  Each object has an id. For a description (a ReDIF template) it is the RePEc handle, such as
  RePEc:aaa:ssssss:1; white space is removed, and all after "RePEc:" is in lower case. For a file it
  is the URL, normalised after RFC 3986, section 6.2.2, with the fragment dropped.

  The path of an object as noted at a tist is made of the two and of nothing else:
  1. The digits of the tist in reverse order, with a / after the third and the sixth. (A tist of less
     than seven digits: zeros are added at the end of the reversed digits until there are ten.)
     1352481230 -> 0321842531 -> 032/184/2531
  2. If "fanout" in layout.json is 256: one more directory, the first two hexadecimal digits (lower
     case) of the 64-bit XXH3 hash (seed 0) of the id in UTF-8. If it is 0: nothing.
  3. The name: the id in UTF-8, every byte but A-Z a-z 0-9 - . _ ~ written as % and two upper-case
     hexadecimal digits. The ids "." and ".." have their dots written as %2E. If the name would be
     longer than 255 bytes: its first 222 bytes (less one or two, where an escape would be cut in
     two), then ~, then the 32 hexadecimal digits of the 128-bit XXH3 hash of the whole id in UTF-8.
     The journals hold the whole id.
     RePEc:aaa:ssssss:1 -> RePEc%3Aaaa%3Assssss%3A1
  So http://openlib.org/home/krichel/ as noted at 1352481230 is
     032/184/2531/http%3A%2F%2Fopenlib.org%2Fhome%2Fkrichel%2F

  Only what was new or had changed at a tist lies at that tist. What an object was at some other time
  is the file of the newest tist before it, unless a journal says that it was lost in between.

What a file is
  A description: one ReDIF template, in UTF-8, lines ended by LF. A file: the bytes that the server
  sent as the body (not changed, not decompressed where the server compressed them).
  A symbolic link: the URL redirected, and this is where to; it leads to the name of the next URL, in
  this directory or in that of an earlier tist. Where two URLs differ by a slash at the end only, there
  may be just one of the two names; try the other.
  Two names of one file (hard links): the object was the same again after it had been otherwise.
  Names that begin with ".+" and end with ".part": the leavings of a run that was cut off. Ignore them.

The journals
  runs/TIST.jsonl.gz (gzip) or, of a run that did not finish, runs/TIST.jsonl: what the run that began
  at that tist saw. Each line is one JSON object in UTF-8, and its "type" says what it tells: the run
  and its data set, an object that appeared, changed or was lost, a redirect, what the server said of a
  file, the files that a template names, the end of the run.
  Lines come in batches. The last line of each is
     {"type":"batch","n":NUMBER,"lines":COUNT,"stamp":TIST,"prev":HASH,"sha256":HASH}
  with the batch's number from 1 on, the count of the lines before it that belong to it, the time it
  was written, the SHA-256 of the batch before it (of all runs, in the order of their tists; zeros in
  the first), and the SHA-256 of all the batch's bytes before ,"sha256" (line ends included).
  Lines after the last whole batch of a run that did not finish do not count.
  Read in the order of their tists the journals give every object's history: checksums, times, losses.

lock
  Is locked (flock) by the run that works here; says which one it is or was. It holds no data.
"""
