"""All outgoing connections. A ``policy`` says what may be connected to, and within which limits.

``door`` sends everything but requests for files. ``FetchPool`` (``pool``) fetches files: it takes
``FetchTask`` and returns ``Hop``, politely, in worker processes; redirects are returned, not followed. From the inside
out:

* ``guard`` resolves names and decides which addresses may be connected to; ``tls`` supports old servers;
* ``h1`` speaks HTTP/1.1 on one connection; ``connect`` opens connections, through a proxy if there is one;
* ``transport`` sends ``messages`` over kept connections; ``ftp`` is the same for ftp URLs;
* ``client`` makes one attempt at a task; ``headers``, ``location`` and ``outcome`` interpret the result;
* ``host_queues`` and ``robots`` are the rules of politeness; ``fetcher`` runs all of it in one event loop;
* ``worker`` is a process with a fetcher; ``pool`` starts several and divides the hosts among them.
"""
