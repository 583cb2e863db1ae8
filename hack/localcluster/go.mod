module github.com/slurmtide/slurmtide/hack/localcluster

go 1.26.0

require golang.org/x/sys v0.40.0 // indirect
