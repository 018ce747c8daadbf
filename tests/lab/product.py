"""Images of the product, and of what it runs beside, for the lab's nodes and for compose: archives in the cache.

Each is named as its users name it, so charts and compose files are tried as they are.

>>> lab.load(product.lockstep_image())
>>> lab.load(product.nats_image())
"""

import hashlib
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from . import dockerfiles, images, packages, paths, versions
from .build import JAEGER, build
from .nats import binary

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
    return dockerfiles.build(_DOCKERFILE, paths.CHECKOUT, lockstep_tag(), argument, key=_key(*_INPUTS))


def slurm_image() -> Path:
    """The small Slurm of compose.yaml."""
    folder = "deploy/docker/slurm"
    context = paths.CHECKOUT / folder
    return dockerfiles.build(context / "Dockerfile", context, f"docker.io/lockstep/slurm:{version()}", key=_key(folder))


def nats_image() -> Path:
    """The NATS server's image, with the server that our lock file pins, under the name of the official one."""
    command = ("nats-server", "--config", "/etc/nats/nats-server.conf")
    return _stand_in(versions.NATS_IMAGE, binary(), "usr/local/bin/nats-server", command=command)


def jaeger_image() -> Path:
    """Jaeger's image; builds Jaeger if it never was, in some minutes."""
    build(JAEGER)
    program = "cmd/jaeger/jaeger-linux"
    return _stand_in(versions.JAEGER_IMAGE, JAEGER.path("jaeger"), program, entrypoint=(f"/{program}",))


def prometheus_image() -> Path:
    """Prometheus's image, with Debian's Prometheus in it."""
    packages.install(packages.FOR_TESTS)
    program = Path(packages.FOR_TESTS["prometheus"]).with_name("prometheus")
    command = ("--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus")
    entrypoint = ("/bin/prometheus",)
    return _stand_in(versions.PROMETHEUS_IMAGE, program, "bin/prometheus", entrypoint=entrypoint, command=command)


def all_images() -> list[Path]:
    """Every image of this module; what needs the network is fetched here."""
    return [lockstep_image(), slurm_image(), nats_image(), jaeger_image(), prometheus_image()]


def _stand_in(
    tag: str, program: Path, place: str, *, entrypoint: Sequence[str] = (), command: Sequence[str] = ()
) -> Path:
    """Archive of an image with one program and its libraries where the official image has it, and a small shell."""
    with program.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        for source, target in [
            (program, root / place),
            *((path, root / str(path)[1:]) for path in _libraries(program)),
        ]:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        images.add_busybox(root, ("sh", "wget"))
        return images.image_from_rootfs(root, tag, key=key, entrypoint=entrypoint, command=command)


def _libraries(program: Path) -> list[Path]:
    """The shared libraries that a program wants; none if it is linked statically."""
    answer = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return [Path(word) for word in answer.stdout.split() if word.startswith("/")]


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
