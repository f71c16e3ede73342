"""Fetching files: one hop for each task, politely, over worker processes (design, section 5).

``FetchPool`` takes ``Task`` and gives ``Hop``; redirects are handed back, not followed. How it is made, from
the inside out: ``h1`` speaks HTTP/1.1 on one connection, ``connect`` opens connections under the rule
of ``guard``, ``transport`` keeps them (behind httpx's transport interface; ``ftp`` is its sister), ``visit`` makes
one attempt, ``hosts`` and ``robots`` know the manners, ``fetcher`` runs it all in one event loop, ``worker`` in a
process of its own, ``pool`` in several.
"""
