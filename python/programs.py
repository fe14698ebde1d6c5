"""What hatchling puts into the wheel beside the modules: the programs that were staged, into the package itself, so that they
are found wherever the package is (`pip install --target`, too), and the tag of the systems that they run on."""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Programs(BuildHookInterface):
    def initialize(self, version, build_data):
        try:
            tree, platform = os.environ["WEIR_WHEEL_TREE"], os.environ["WEIR_WHEEL_PLATFORM"]
        except KeyError as missing:
            raise SystemExit(f"{missing} is not set: make the wheel by scripts/package wheel") from None
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][tree] = "weir"
