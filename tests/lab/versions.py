"""Every version the lab pins, in one place. What is built is cached under these names."""

KUBERNETES = "v1.36.3"
"""Control plane, kubelet, kube-proxy and kubectl; the same number stands in ``go/kubernetes/go.mod``."""

CONTAINERD = "v2.2.9"
"""containerd, its shim and ctr; ``go/containerd/go.mod``."""

COREDNS = "v1.15.0"
"""``go/coredns/go.mod``."""

JAEGER = "v1.76.0"
"""``go/jaeger/go.mod``; of this module version it is Jaeger 2, whose page is not built in, only its API."""

NATSCLI = "v0.5.0"
"""The command `nats`; ``go/natscli/go.mod``."""

HELM = "v4.3.1"
"""``go/helm/go.mod``."""

PAUSE = "docker.io/lockstep-lab/pause:1"
"""The sandbox image, made of Debian's busybox-static."""

BASE = "docker.io/library/debian:trixie-slim"
"""The base image under its upstream tag, so that an ordinary Dockerfile builds without a registry."""

BASE_SUITE = "trixie"
"""The Debian release in ``BASE``."""

NATS_IMAGE = "docker.io/library/nats:2.15.1-alpine"
"""What the chart and compose run; in the lab it holds the server of the same version from the wheel."""

JAEGER_IMAGE = "docker.io/jaegertracing/jaeger:2.13.0"
"""The same release as ``JAEGER``, whose program is in the lab's image of this name."""

PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v3.5.0"
"""What compose runs; in the lab Debian's Prometheus stands in."""

COMPOSE_SUITE = "forky"
"""The first Debian release with Compose 2, which runs on older ones too."""
