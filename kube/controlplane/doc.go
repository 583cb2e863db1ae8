// Package controlplane makes a Slurm control plane of Kubernetes objects: of a Controller its slurmctld, of a RestApi its slurmrestd, of a LoginSet pods that
// users reach by ssh, of a Token a Secret that is kept fresh.
//
// The pure half turns what is wanted into slurm.conf (Config) and objects (ControllerObjects, RestApiObjects, LoginSetObjects), and what is seen into
// conditions. The loop (Loop) reads through informers, applies what differs, and writes nothing when nothing has changed.
//
// # A new configuration
//
// slurmctld in a container runs in the foreground, and there a reconfiguration that it refuses ends it (controller.c, _try_to_reconfig: without
// -D a child tries it first). So what the objects ask for is only offered to the pod, as a ConfigMap. The container "reconfigure" beside
// slurmctld (package inplace) lets a slurmctld of its own read it, in a directory and on a port of its own. If that one becomes
// primary, the files are put in place and the real one reads them; if not, they are not, and its error is
// reported on the pod. What was last in force is kept beside slurmctld's state, so a new pod starts with it.
//
// # Backups
//
// slurmctlds that stand by share that state, and read what is kept there: only what has come into force in the one that is in control. So there is one
// trial, and all have the same files. Who is in control they know by slurmctld's heartbeat file.
package controlplane
