"""Text of fetched files, for the text checksums (vi, vo).

``sniff`` tells what a body is, ``extract`` takes its text, ``pool`` does so in worker processes
that may crash, hang or eat memory without hurting a run.
"""
