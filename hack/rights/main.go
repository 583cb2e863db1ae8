// Command rights finds verbs that our roles give and nobody uses: it compares them with what a run of a whole suite of tests did, by the API server's audit log.
// A verb that is missing makes those tests fail by itself.
//
//	go run ./hack/rights control-plane $SLURMTIDE_CACHE/clusters/slurmtide-test/logs/audit*.log
//
// What no test uses, though somebody does, stands in allowed.txt, each with its reason.
package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

//go:embed allowed.txt
var allowedText string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rights:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || suites[args[0]] == nil {
		return fmt.Errorf("usage: rights %s LOG, or several", strings.Join(slices.Sorted(maps.Keys(suites)), "|"))
	}
	suite := args[0]
	used := rights{}
	for _, file := range args[1:] {
		if err := used.readLog(file); err != nil {
			return err
		}
	}
	allowed, err := parseAllowed(allowedText)
	if err != nil {
		return err
	}
	if found := compare(suites[suite], used, allowed[suite]); len(found) > 0 {
		return fmt.Errorf("suite %s:\n%s", suite, strings.Join(found, "\n"))
	}
	roles := slices.Sorted(maps.Keys(suites[suite]))
	fmt.Printf("rights: all that %s should use of %s is used, but for %d on the list\n", suite, strings.Join(roles, " and "), len(allowed[suite]))
	return nil
}
