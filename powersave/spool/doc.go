// Package spool is the hand-over between slurmctld and the bridge: the four small
// programs that slurm.conf names write one durable request each and exit, the bridge
// reads them whenever it is up.
//
// slurmctld kills slow programs, forgets their exit status and never calls again, so a
// program must not depend on anything that can be down: it writes a file, syncs it,
// renames it into place, syncs the directory, pokes the bridge's socket and exits.
//
// A spool directory belongs to SlurmUser, mode 0700:
//
//	version        layout version, one decimal number
//	requests/      one JSON file for each accepted request, named <id>.json
//	bad/           requests that could not be read, set aside for a human
//	sequence       last ID given out and a running count; locked while an ID is given
//	bridge.sock    the bridge's socket: pokes, start gates, status
//	identity       random name of this spool, for the lease of the bridges
//	bridge.lock    held by the bridge that owns the socket
//	programs.log   what the programs did, one line each, rotated once to programs.log.1
package spool
