"""A cordon in Kubernetes is a DRAIN in Slurm, with the same words, and goes when the cordon goes."""

from tests.e2e.site import POD_CORDON, REASON, Site, eventually


def test_a_cordon_drains_in_slurm_and_an_uncordon_undrains(site: Site) -> None:
    """`kubectl cordon` sets DRAIN with words that name who and why; `kubectl uncordon` lifts it."""
    host = site.cordon("gpu-1")

    drained = eventually("DRAIN", lambda: (v := site.slurm("gpu-1")).drained and v)
    assert drained.reason.startswith("lockstep: kubectl")
    assert "cordoned" in drained.reason

    site.kubectl("uncordon", host)
    eventually("no DRAIN", lambda: not site.slurm("gpu-1").drained)
    assert site.slurm("gpu-1").reason == ""
    assert not site.slurm("gpu-2").drained


def test_the_reason_annotation_gives_the_words(site: Site) -> None:
    """The node's annotation `node-cordon-reason` is what Slurm shows, cleaned and behind our mark."""
    host = site.host("gpu-2")
    site.kubectl("annotate", "node", host, f"{REASON}=DIMM B2\nswap\t(ticket 4711)")
    site.kubectl("cordon", host)

    drained = eventually("DRAIN", lambda: (v := site.slurm("gpu-2")).drained and v)
    assert drained.reason == "lockstep: kubectl: DIMM B2 swap (ticket 4711)" or drained.reason.endswith(
        ": DIMM B2 swap (ticket 4711)"
    )

    site.kubectl("annotate", "--overwrite", "node", host, f"{REASON}=other words")
    eventually("the new words", lambda: site.slurm("gpu-2").reason.endswith("other words"))


def test_a_cordoned_pod_drains_its_worker(site: Site) -> None:
    """The annotation `pod-cordon` is a hold on its own; only the exact value "true" counts."""
    site.kubectl("annotate", "pod", "gpu-3", "-n", "slurm", f"{POD_CORDON}=true")
    drained = eventually("DRAIN", lambda: (v := site.slurm("gpu-3")).drained and v)
    assert drained.reason.startswith("lockstep: ")

    site.kubectl("annotate", "--overwrite", "pod", "gpu-3", "-n", "slurm", f"{POD_CORDON}=yes")
    eventually("no DRAIN", lambda: not site.slurm("gpu-3").drained)


def test_a_cordon_and_a_cordoned_pod_need_both_to_end(site: Site) -> None:
    """Two holds stand; the first to end frees nothing."""
    host = site.cordon("gpu-1")
    site.kubectl("annotate", "pod", "gpu-1", "-n", "slurm", f"{POD_CORDON}=true")
    eventually("two holds", lambda: site.slurm("gpu-1").reason.endswith("(+1 more)"))

    site.kubectl("uncordon", host)
    eventually("one hold", lambda: "(+1 more)" not in site.slurm("gpu-1").reason)
    assert site.slurm("gpu-1").drained

    site.kubectl("annotate", "pod", "gpu-1", "-n", "slurm", f"{POD_CORDON}-")
    eventually("no DRAIN", lambda: not site.slurm("gpu-1").drained)
