// Command metricsdoc writes docs/metrics.md to its standard output. It runs in the root of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/slurmtide/slurmtide/test/monitoring/catalogue"
)

func main() {
	daemons, err := catalogue.Read(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
	fmt.Print(catalogue.Page(daemons))
}
