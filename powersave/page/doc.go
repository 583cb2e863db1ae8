// Package page is the bridge's page for people: how the cluster stands, where the seconds of boots go, what is not tried and why, and the story of a job, a node or a NodeSet. It
// asks the bridge what `slurmtide status` and `slurmtide explain` ask it, and changes nothing.
//
// What the page says is worked out by pure functions: Look makes a View of a snapshot and of the newest entries of the history, find says what a search finds. A View has
// aggregates, and lists with an end, whatever the size of the cluster. One loop looks while somebody watches, and what it sees is marshalled once for all who do.
package page
