"""Images of the product, and of what it runs beside, for the lab's nodes and for compose: archives in the cache.

Each is named as its users name it, so charts and compose files are tried as they are.

>>> lab.load(product.lockstep_image())
>>> lab.load(product.nats_image())
"""

import hashlib
import tomllib
from pathlib import Path

from . import images, paths

_DOCKERFILE = paths.CHECKOUT / "deploy" / "docker" / "Dockerfile"
_INPUTS = (
    ".dockerignore",
    "LICENSE",
    "README.md",
    "deploy/docker/Dockerfile",
    "libs",
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/runtime.txt",
    "services",
)
"""What our image depends on."""


def version() -> str:
    """The product's version."""
    with (paths.CHECKOUT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def lockstep_tag() -> str:
    """The name of our image."""
    return f"docker.io/lockstep/lockstep:{version()}"


def lockstep_image() -> Path:
    """Our image as an archive, built from its Dockerfile whenever something that goes into it has changed."""
    argument = f"--build-arg=VERSION={version()}"
    return images.build(_DOCKERFILE, paths.CHECKOUT, lockstep_tag(), argument, key=_key(*_INPUTS))


def _key(*names: str) -> str:
    """A digest of these files and folders of the checkout."""
    digest = hashlib.sha256()
    for name in names:
        top = paths.CHECKOUT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(paths.CHECKOUT)}\0{path.stat().st_mode}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
