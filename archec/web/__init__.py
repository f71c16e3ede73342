"""All outgoing connections. A ``policy`` says what may be connected to, and within which limits.

``door`` sends everything but requests for files. ``FetchPool`` (``pool``) fetches files: it takes
``FetchTask`` and returns ``Hop``, politely, in worker processes; redirects are returned, not followed. From the inside
out:

* ``h1`` speaks HTTP/1.1 on one connection; ``tls`` supports old servers;
* ``guard`` resolves names, decides which addresses may be connected to, and opens connections, through a proxy if there
  is one;
* ``transport`` sends ``messages`` over kept connections; ``ftp`` is the same for ftp URLs;
* ``client`` makes one attempt at a task; ``messages``, ``location`` and ``outcome`` interpret the result;
* ``politeness`` has a queue for each host, and robots.txt; ``fetcher`` runs all of it in one event loop of a process;
* ``pool`` starts several such processes and divides the hosts among them.
"""
