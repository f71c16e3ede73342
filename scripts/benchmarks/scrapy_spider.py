"""A Scrapy spider that writes each body to a file, run with Scrapy's own Python: ``URLS FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

URLS, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])


class Bodies(scrapy.Spider):
    """Fetches what is listed."""

    name = "bodies"
    start_urls = URLS.read_text(encoding="ascii").split()

    def parse(self, response: Response) -> None:
        """Writes the body."""
        (FOLDER / response.url.rpartition("/")[2]).write_bytes(response.body)


process = CrawlerProcess(
    {
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
    }
)
process.crawl(Bodies)
process.start()
