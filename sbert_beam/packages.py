"""Finds the packages of this distribution where other packages or folders have the same names.

`transforms` and `pipelines` are also packages on PyPI and folders in many projects. Ours are installed beside this one.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

NAMES = ("sbert_core", "transforms", "pipelines")
HOME = Path(__file__).resolve().parents[1]


def import_own_packages() -> None:
    """Imports our packages from beside this one, whatever else on the Python path has their names.

    For processes that run nothing but our code. A package of the same name that is imported already is an ImportError.
    """
    for name in NAMES:
        if name not in sys.modules:
            spec = importlib.machinery.PathFinder.find_spec(name, [str(HOME)])
            if spec is None or spec.loader is None:
                raise ImportError(f"{HOME} has no package {name}: install sbert-beam again", name=name)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
    check_packages()


def check_packages() -> None:
    """Raises an ImportError of one line if Python finds another package or folder in place of one of ours."""
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        places = list((spec and spec.submodule_search_locations) or [])
        found = str(Path(places[0]).resolve()) if places else str(spec and spec.origin)
        if found != str(HOME / name):
            raise ImportError(
                f"{found} is in the way: sbert_beam needs its own package {name}, in {HOME}. Rename the other one, or "
                "put it after that folder on the Python path",
                name=name,
            )
