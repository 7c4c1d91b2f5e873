from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.s3 import S3Server, s3_server
from tests.cli.trees import Named
from tests.fixtures import memory_alone as memory_alone
from tests.fixtures import s3_environment as s3_environment


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def named(request: pytest.FixtureRequest, tmp_path: Path, address: str, prefix: str) -> Named:
    def name(kind: str, which: str) -> str:
        if kind == "s3":
            s3 = request.getfixturevalue("s3")
            request.getfixturevalue("s3_environment")
            return f"s3://{s3.bucket}/{prefix}/{which}"
        return str(tmp_path / which) if kind == "directory" else f"{address}/{which}"

    return name
