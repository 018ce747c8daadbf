#!/bin/sh
# Fills the volumes before anything else starts: Slurm's configuration and keys, and the kubeconfig, each readable by
# the one process that reads it. Keys are made once; everything else is copied anew at each start.
set -eu
umask 077
lockstep=65532 slurm=64030 slurmrest=64031 root=0

give() { # FROM TO UID
  install -o "$3" -g "$3" -m 0400 "$1" "$2"
}

for key in slurm.key jwt_hs256.key; do
  [ -s "/volumes/keys/$key" ] || head -c 64 /dev/urandom > "/volumes/keys/$key"
done
for daemon in slurmctld slurmrestd slurmd; do
  chmod 0755 "/volumes/$daemon"
done
for conf in slurm.conf cgroup.conf; do
  give "/usr/share/lockstep/$conf" "/volumes/slurmctld/$conf" "$slurm"
  give "/usr/share/lockstep/$conf" "/volumes/slurmrestd/$conf" "$slurmrest"
done
give /volumes/keys/slurm.key /volumes/slurmctld/slurm.key "$slurm"
give /volumes/keys/slurm.key /volumes/slurmrestd/slurm.key "$slurmrest"
give /volumes/keys/slurm.key /volumes/slurmd/slurm.key "$root"
give /volumes/keys/jwt_hs256.key /volumes/slurmctld/jwt_hs256.key "$slurm"
give /volumes/keys/jwt_hs256.key /volumes/lockstep/jwt_hs256.key "$lockstep"

if [ -s /kubeconfig ]; then
  give /kubeconfig /volumes/lockstep/kubeconfig "$lockstep"
elif [ -s /volumes/k3s/kubeconfig ]; then
  sed 's#https://127.0.0.1:#https://k3s:#' /volumes/k3s/kubeconfig > /volumes/keys/kubeconfig
  give /volumes/keys/kubeconfig /volumes/lockstep/kubeconfig "$lockstep"
else
  echo "no Kubernetes: set KUBECONFIG to a file with one flattened context, or use --profile k3s" >&2
  exit 1
fi
chown "$lockstep:$lockstep" /volumes/lockstep /volumes/nats /volumes/prometheus
