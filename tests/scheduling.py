"""Which tests stay together on one worker."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling


class TogetherByFixtures(LoadScopeScheduling):
    """Tests of a file with fixtures of its module run on one worker, which makes them once; others fill gaps."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if has_fixtures_of_its_module(self.config.rootpath / file) else nodeid


@cache
def has_fixtures_of_its_module(path: Path) -> bool:
    return 'scope="module"' in path.read_text(encoding="utf-8")
