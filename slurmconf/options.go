package slurmconf

import "strings"

// repeatable tells of a key that slurm.conf, gres.conf or topology.conf may have several times, each line with its own meaning.
func repeatable(key string) bool {
	switch strings.ToLower(key) {
	case "nodename", "partitionname", "nodeset", "downnodes", "slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld",
		"poweraction", "frontendname", "name", "switchname", "blockname", "include":
		return true
	}
	return false
}
