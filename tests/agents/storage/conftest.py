import contextlib
import resource

import pytest


@pytest.fixture
def file_size_limit():
    """Stands for a full disk: inside of it, the kernel refuses to write past so many bytes of any file."""

    @contextlib.contextmanager
    def limit(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit
