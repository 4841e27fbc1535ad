"""The search of documentation that is opened from the disk, where there is a site: `make docs` builds it."""

import pytest

from agents.storage.run_folder import REPOSITORY
from tests.browser import dom


def test_pages_from_the_disk_find_words_and_fetch_nothing():
    site = REPOSITORY / "site"
    if not (site / "search").is_dir():
        pytest.skip("no documentation has been built")
    for page in ("index.html", "results/scales.html"):
        shown = dom((site / page).as_uri() + "?q=Pop-Art")
        assert "matching documents" in shown and 'class="md-search-result__link"' in shown, page
        assert 'src="http' not in shown and "unpkg" not in shown, page
