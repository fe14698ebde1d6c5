"""`import weir` as the wheel has it, on the staged build."""
import pytest
from conftest import ROOT, STAGE


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A folder for PYTHONPATH with the package and the programs that the wheel puts into it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "weir").mkdir()
    for path in (ROOT / "python/weir").glob("*.py"):
        (folder / "weir" / path.name).symlink_to(path)
    for name in ("bin", "lib", "vgpu"):
        (folder / "weir" / name).symlink_to(STAGE / name)
    return folder
