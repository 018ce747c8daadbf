"""The lab: a real Kubernetes control plane, real kubelets, real Slurm and NATS on one Debian machine.

Standard library only, so that it starts before any virtual environment exists. See ``README.md`` beside this file.
"""
