"""All outgoing connections. A ``policy`` says what may be connected to, and within which limits.

``door`` is an httpx client for everything but files. ``FetchPool`` (``pool``) is for files: it takes ``FetchTask`` and
returns ``Hop``, politely, over worker processes; redirects are returned, not followed. From the inside out:

* ``guard`` resolves names and says which addresses may be connected to; ``tls`` supports old servers;
* ``h1`` speaks HTTP/1.1 on one connection, ``connect`` opens connections, through a proxy if there is one;
* ``transport`` keeps connections, behind httpx's transport interface; ``ftp`` is the same for ftp URLs;
* ``client`` makes one attempt at a task; ``headers``, ``location``, ``outcome`` and ``faults`` interpret the result;
* ``politeness`` and ``robots`` are the rules of asking, ``fetcher`` runs all of it in one event loop;
* ``worker`` is a process with a fetcher, ``pool`` starts several and shares the hosts among them.
"""
