package slurmconf

import "iter"

// Hostlist is an ordered list of node names in Slurm's bracket notation.
type Hostlist struct{ names []string }

// ParseHostlist reads Slurm's hostlist grammar.
func ParseHostlist(s string) (Hostlist, error) { panic("being written") }

// CompressHostlist returns the shortest hostlist string for names, in the order given.
func CompressHostlist(names []string) string { panic("being written") }

// Len returns the number of names.
func (h Hostlist) Len() int { return len(h.names) }

// All yields the names in order without building them all.
func (h Hostlist) All() iter.Seq[string] { panic("being written") }

// Contains reports whether name is in the list.
func (h Hostlist) Contains(name string) bool { panic("being written") }

// String returns the compressed form.
func (h Hostlist) String() string { panic("being written") }
